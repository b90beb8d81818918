-- Which migrations have been applied, one row each. It is made before the first
-- of them, and goes with the last one.
-- +up
CREATE TABLE IF NOT EXISTS ${table.schema_version} (
    version    bigint      NOT NULL PRIMARY KEY,
    compatible bigint      NOT NULL,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL
);
COMMENT ON TABLE ${table.schema_version} IS 'sqllock: the migrations that have been applied to its tables';
COMMENT ON COLUMN ${table.schema_version}.version IS 'number of the migration';
COMMENT ON COLUMN ${table.schema_version}.compatible IS 'programs made for a schema older than this version no longer work';
COMMENT ON COLUMN ${table.schema_version}.name IS 'name of the migration';
COMMENT ON COLUMN ${table.schema_version}.applied_at IS 'when it was applied';
-- +down
DROP TABLE IF EXISTS ${table.schema_version};
