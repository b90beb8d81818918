-- compatible: 1
-- One row per job, updated at every start and end: no index but the key. A job
-- is switched off by UPDATE jobs SET disabled = 1 WHERE name = '...'.
-- +up
CREATE TABLE IF NOT EXISTS ${table.jobs} (
    -- sqllock: scheduled jobs, each of which runs on one machine at a time
    name         TEXT NOT NULL, -- name of the job, 1 to 255 bytes, compared byte by byte
    disabled     INTEGER NOT NULL DEFAULT 0, -- true (1): the job is skipped everywhere
    disabled_at  INTEGER, -- when it was switched off
    note         TEXT, -- free text: why it was switched off, by whom
    period_us    INTEGER, -- the period that the last start declared, in microseconds. NULL: none
    last_run     TEXT, -- id of the last run in the table of runs
    last_token   INTEGER NOT NULL DEFAULT 0, -- fencing token of the last run. 0 where the lock has none
    last_start   INTEGER, -- when the last run started, by the clock of the database: the next is due a period later
    last_end     INTEGER, -- when the last run ended. NULL while it runs
    last_outcome TEXT, -- how the last run ended: see the table of runs
    created_at   INTEGER NOT NULL, -- when the job was first seen
    PRIMARY KEY (name)
) STRICT, WITHOUT ROWID;
-- +down
DROP TABLE IF EXISTS ${table.jobs};
