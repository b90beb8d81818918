-- Which migrations have been applied, one row each. It is made before the first
-- of them, and goes with the last one.
-- +up
CREATE TABLE IF NOT EXISTS ${table.schema_version} (
    -- sqllock: the migrations that have been applied to its tables
    version    INTEGER NOT NULL, -- number of the migration
    compatible INTEGER NOT NULL, -- programs made for a schema older than this version no longer work
    name       TEXT NOT NULL, -- name of the migration
    applied_at INTEGER NOT NULL, -- when it was applied
    PRIMARY KEY (version)
) STRICT, WITHOUT ROWID;
-- +down
DROP TABLE IF EXISTS ${table.schema_version};
