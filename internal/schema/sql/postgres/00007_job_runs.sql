-- compatible: 1
-- One row per run, inserted at its start, completed at its end. The index is on
-- what never changes, so completing a run is HOT. It serves the history of a job,
-- latest first, and pruning.
-- +up
CREATE TABLE IF NOT EXISTS ${table.job_runs} (
    id          text COLLATE "C" NOT NULL PRIMARY KEY,
    job         text COLLATE "C" NOT NULL,
    token       bigint           NOT NULL DEFAULT 0,
    owner       text COLLATE "C",
    host        text,
    address     text,
    pid         bigint,
    started_at  timestamptz      NOT NULL,
    lease_until timestamptz,
    finished_at timestamptz,
    outcome     text COLLATE "C" NOT NULL,
    exit_code   integer,
    error       text,
    note        text
) WITH (fillfactor = 90);
CREATE INDEX IF NOT EXISTS ${name.job_runs_history} ON ${table.job_runs} (job, started_at);
COMMENT ON TABLE ${table.job_runs} IS 'sqllock: the history of jobs, one row per run';
COMMENT ON COLUMN ${table.job_runs}.id IS 'random identity of the run';
COMMENT ON COLUMN ${table.job_runs}.job IS 'name of the job';
COMMENT ON COLUMN ${table.job_runs}.token IS 'fencing token of the lock the run held. 0 where the lock has none';
COMMENT ON COLUMN ${table.job_runs}.owner IS 'random identity under which the lock was held';
COMMENT ON COLUMN ${table.job_runs}.host IS 'machine the run was on';
COMMENT ON COLUMN ${table.job_runs}.address IS 'network address of the machine';
COMMENT ON COLUMN ${table.job_runs}.pid IS 'process id on the machine';
COMMENT ON COLUMN ${table.job_runs}.started_at IS 'start, by the clock of the database';
COMMENT ON COLUMN ${table.job_runs}.lease_until IS 'a run still marked running after this, and whose lock is free, was abandoned';
COMMENT ON COLUMN ${table.job_runs}.finished_at IS 'end, by the clock of the database. NULL while it runs';
COMMENT ON COLUMN ${table.job_runs}.outcome IS 'running, ok, failed, timed_out, lost or abandoned';
COMMENT ON COLUMN ${table.job_runs}.exit_code IS 'exit code, where the run was a command';
COMMENT ON COLUMN ${table.job_runs}.error IS 'why it failed, cut to 4000 characters';
COMMENT ON COLUMN ${table.job_runs}.note IS 'free text of the job';
-- +down
DROP TABLE IF EXISTS ${table.job_runs};
