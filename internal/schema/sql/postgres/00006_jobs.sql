-- compatible: 1
-- One row per job, updated at every start and end: room in each page, no index
-- but the key. A job is switched off by
-- UPDATE jobs SET disabled = true WHERE name = '...'.
-- +up
CREATE TABLE IF NOT EXISTS ${table.jobs} (
    name         text COLLATE "C" NOT NULL PRIMARY KEY,
    disabled     boolean          NOT NULL DEFAULT false,
    disabled_at  timestamptz,
    note         text,
    period_us    bigint,
    last_run     text COLLATE "C",
    last_token   bigint           NOT NULL DEFAULT 0,
    last_start   timestamptz,
    last_end     timestamptz,
    last_outcome text COLLATE "C",
    created_at   timestamptz      NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE ${table.jobs} IS 'sqllock: scheduled jobs, each of which runs on one machine at a time';
COMMENT ON COLUMN ${table.jobs}.name IS 'name of the job, 1 to 255 bytes, compared byte by byte';
COMMENT ON COLUMN ${table.jobs}.disabled IS 'true (1): the job is skipped everywhere';
COMMENT ON COLUMN ${table.jobs}.disabled_at IS 'when it was switched off';
COMMENT ON COLUMN ${table.jobs}.note IS 'free text: why it was switched off, by whom';
COMMENT ON COLUMN ${table.jobs}.period_us IS 'the period that the last start declared, in microseconds. NULL: none';
COMMENT ON COLUMN ${table.jobs}.last_run IS 'id of the last run in the table of runs';
COMMENT ON COLUMN ${table.jobs}.last_token IS 'fencing token of the last run. 0 where the lock has none';
COMMENT ON COLUMN ${table.jobs}.last_start IS 'when the last run started, by the clock of the database: the next is due a period later';
COMMENT ON COLUMN ${table.jobs}.last_end IS 'when the last run ended. NULL while it runs';
COMMENT ON COLUMN ${table.jobs}.last_outcome IS 'how the last run ended: see the table of runs';
COMMENT ON COLUMN ${table.jobs}.created_at IS 'when the job was first seen';
-- +down
DROP TABLE IF EXISTS ${table.jobs};
