-- compatible: 1
-- One row per run, inserted at its start, completed at its end. The index is on
-- what never changes. It serves the history of a job, latest first, and pruning.
-- +up
CREATE TABLE IF NOT EXISTS ${table.job_runs} (
    -- sqllock: the history of jobs, one row per run
    id          TEXT NOT NULL, -- random identity of the run
    job         TEXT NOT NULL, -- name of the job
    token       INTEGER NOT NULL DEFAULT 0, -- fencing token of the lock the run held. 0 where the lock has none
    owner       TEXT, -- random identity under which the lock was held
    host        TEXT, -- machine the run was on
    address     TEXT, -- network address of the machine
    pid         INTEGER, -- process id on the machine
    started_at  INTEGER NOT NULL, -- start, by the clock of the database
    lease_until INTEGER, -- a run still marked running after this, and whose lock is free, was abandoned
    finished_at INTEGER, -- end, by the clock of the database. NULL while it runs
    outcome     TEXT NOT NULL, -- running, ok, failed, timed_out, lost or abandoned
    exit_code   INTEGER, -- exit code, where the run was a command
    error       TEXT, -- why it failed, cut to 4000 characters
    note        TEXT, -- free text of the job
    PRIMARY KEY (id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ${table.job_runs_history} ON ${name.job_runs} (job, started_at);
-- +down
DROP TABLE IF EXISTS ${table.job_runs};
