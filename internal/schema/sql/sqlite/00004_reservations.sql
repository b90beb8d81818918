-- compatible: 1
-- A reservation is settled once: its state leaves 'held' and never comes back.
-- The partial index holds what is still open only, however long the history is,
-- and serves the sweep of everything that has expired.
-- +up
CREATE TABLE IF NOT EXISTS ${table.reservations} (
    -- sqllock: stock that is held for a time, then confirmed or given back
    id         TEXT NOT NULL, -- random identity of the reservation
    owner      TEXT NOT NULL, -- random identity of who reserved
    state      TEXT NOT NULL, -- held, confirmed, cancelled or expired
    created_at INTEGER NOT NULL, -- when it was made
    expires_at INTEGER NOT NULL, -- from then on, by the clock of the database, it can no longer be confirmed
    settled_at INTEGER, -- when it was confirmed, cancelled or swept
    note       TEXT, -- free text of who reserved
    PRIMARY KEY (id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ${table.reservations_open} ON ${name.reservations} (expires_at) WHERE state = 'held';
-- +down
DROP TABLE IF EXISTS ${table.reservations};
