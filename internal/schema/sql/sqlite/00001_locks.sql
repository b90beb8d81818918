-- compatible: 1
-- One row per (name, slot), made on first touch and kept: release updates it.
-- The row is in the key's own tree (WITHOUT ROWID), so a lock is one page. Times
-- are microseconds since 1970 in UTC: integers compare as times do.
-- +up
CREATE TABLE IF NOT EXISTS ${table.locks} (
    -- sqllock: one row per lock. Free when expires_at and hold_until have both passed
    name         TEXT NOT NULL, -- name of the lock, 1 to 255 bytes, compared byte by byte
    slot         INTEGER NOT NULL DEFAULT 0, -- 0 for a plain lock and for the header row of a name. Others are the slots of a semaphore
    owner        TEXT, -- random identity of the last holder. NULL after a lock taken inside a transaction
    token        INTEGER NOT NULL DEFAULT 0, -- fencing token. It only grows, and rows are kept so that it does
    acquired_at  INTEGER, -- when the last holder got the lock
    expires_at   INTEGER NOT NULL DEFAULT 0, -- end of the lease by the clock of the database. 1970 once released
    hold_until   INTEGER NOT NULL DEFAULT 0, -- nobody else gets the lock before, even if its holder releases it or dies
    freed_at     INTEGER, -- when it was released. Clean-up removes rows that have long been free
    waited_since INTEGER, -- set by who waits: the release then sends a wake-up
    holder       TEXT, -- who the last holder was, as JSON: host, pid, label. For people, never compared
    last_ticket  INTEGER NOT NULL DEFAULT 0, -- in the header row: the last number given to a waiter of the fair queue
    slots        INTEGER, -- in the header row: how many slots the semaphore has. NULL for a plain lock
    PRIMARY KEY (name, slot)
) STRICT, WITHOUT ROWID;
-- +down
DROP TABLE IF EXISTS ${table.locks};
