-- Which migrations have been applied, one row each. It is made before the first
-- of them, and goes with the last one.
-- +up
CREATE TABLE IF NOT EXISTS ${table.schema_version} (
    version    BIGINT NOT NULL
        COMMENT 'number of the migration',
    compatible BIGINT NOT NULL
        COMMENT 'programs made for a schema older than this version no longer work',
    name       VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
        COMMENT 'name of the migration',
    applied_at DATETIME(6) NOT NULL
        COMMENT 'when it was applied',
    PRIMARY KEY (version)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
  DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
  COMMENT = 'sqllock: the migrations that have been applied to its tables';
-- +down
DROP TABLE IF EXISTS ${table.schema_version};
