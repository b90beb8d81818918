-- compatible: 1
-- One row per job, updated at every start and end: no index but the key. A job
-- is switched off by UPDATE jobs SET disabled = 1 WHERE name = '...'.
-- +up
CREATE TABLE IF NOT EXISTS ${table.jobs} (
    name         VARBINARY(255) NOT NULL
        COMMENT 'name of the job, 1 to 255 bytes, compared byte by byte',
    disabled     TINYINT(1) NOT NULL DEFAULT 0
        COMMENT 'true (1): the job is skipped everywhere',
    disabled_at  DATETIME(6) NULL
        COMMENT 'when it was switched off',
    note         VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL
        COMMENT 'free text: why it was switched off, by whom',
    period_us    BIGINT NULL
        COMMENT 'the period that the last start declared, in microseconds. NULL: none',
    last_run     VARBINARY(64) NULL
        COMMENT 'id of the last run in the table of runs',
    last_token   BIGINT NOT NULL DEFAULT 0
        COMMENT 'fencing token of the last run. 0 where the lock has none',
    last_start   DATETIME(6) NULL
        COMMENT 'when the last run started, by the clock of the database: the next is due a period later',
    last_end     DATETIME(6) NULL
        COMMENT 'when the last run ended. NULL while it runs',
    last_outcome VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL
        COMMENT 'how the last run ended: see the table of runs',
    created_at   DATETIME(6) NOT NULL
        COMMENT 'when the job was first seen',
    PRIMARY KEY (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
  DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
  COMMENT = 'sqllock: scheduled jobs, each of which runs on one machine at a time';
-- +down
DROP TABLE IF EXISTS ${table.jobs};
