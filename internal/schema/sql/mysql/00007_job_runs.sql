-- compatible: 1
-- One row per run, inserted at its start, completed at its end. The index is on
-- what never changes. It serves the history of a job, latest first, and pruning.
-- +up
CREATE TABLE IF NOT EXISTS ${table.job_runs} (
    id          VARBINARY(64) NOT NULL
        COMMENT 'random identity of the run',
    job         VARBINARY(255) NOT NULL
        COMMENT 'name of the job',
    token       BIGINT NOT NULL DEFAULT 0
        COMMENT 'fencing token of the lock the run held. 0 where the lock has none',
    owner       VARBINARY(64) NULL
        COMMENT 'random identity under which the lock was held',
    host        VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL
        COMMENT 'machine the run was on',
    address     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL
        COMMENT 'network address of the machine',
    pid         BIGINT NULL
        COMMENT 'process id on the machine',
    started_at  DATETIME(6) NOT NULL
        COMMENT 'start, by the clock of the database',
    lease_until DATETIME(6) NULL
        COMMENT 'a run still marked running after this, and whose lock is free, was abandoned',
    finished_at DATETIME(6) NULL
        COMMENT 'end, by the clock of the database. NULL while it runs',
    outcome     VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
        COMMENT 'running, ok, failed, timed_out, lost or abandoned',
    exit_code   INT NULL
        COMMENT 'exit code, where the run was a command',
    error       VARCHAR(4000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL
        COMMENT 'why it failed, cut to 4000 characters',
    note        VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL
        COMMENT 'free text of the job',
    PRIMARY KEY (id),
    KEY job_runs_history (job, started_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
  DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
  COMMENT = 'sqllock: the history of jobs, one row per run';
-- +down
DROP TABLE IF EXISTS ${table.job_runs};
