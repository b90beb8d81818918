-- compatible: 1
-- A reservation is settled once: its state leaves 'held' and never comes back.
-- The partial index holds what is still open only, however long the history is,
-- and serves the sweep of everything that has expired.
-- +up
CREATE TABLE IF NOT EXISTS ${table.reservations} (
    id         text COLLATE "C" NOT NULL PRIMARY KEY,
    owner      text COLLATE "C" NOT NULL,
    state      text COLLATE "C" NOT NULL,
    created_at timestamptz      NOT NULL,
    expires_at timestamptz      NOT NULL,
    settled_at timestamptz,
    note       text
);
CREATE INDEX IF NOT EXISTS ${name.reservations_open} ON ${table.reservations} (expires_at) WHERE state = 'held';
COMMENT ON TABLE ${table.reservations} IS 'sqllock: stock that is held for a time, then confirmed or given back';
COMMENT ON COLUMN ${table.reservations}.id IS 'random identity of the reservation';
COMMENT ON COLUMN ${table.reservations}.owner IS 'random identity of who reserved';
COMMENT ON COLUMN ${table.reservations}.state IS 'held, confirmed, cancelled or expired';
COMMENT ON COLUMN ${table.reservations}.created_at IS 'when it was made';
COMMENT ON COLUMN ${table.reservations}.expires_at IS 'from then on, by the clock of the database, it can no longer be confirmed';
COMMENT ON COLUMN ${table.reservations}.settled_at IS 'when it was confirmed, cancelled or swept';
COMMENT ON COLUMN ${table.reservations}.note IS 'free text of who reserved';
-- +down
DROP TABLE IF EXISTS ${table.reservations};
