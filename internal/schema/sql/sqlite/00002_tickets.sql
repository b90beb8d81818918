-- compatible: 1
-- Waiters of the fair queue, in the order of their numbers. A ticket has its own
-- expiry, which its waiter renews, so that a dead waiter is passed over.
-- +up
CREATE TABLE IF NOT EXISTS ${table.tickets} (
    -- sqllock: who waits for a lock in a fair queue
    name       TEXT NOT NULL, -- name of the lock
    ticket     INTEGER NOT NULL, -- place in the queue, numbered by last_ticket of the lock's header row
    owner      TEXT NOT NULL, -- random identity of the waiter
    created_at INTEGER NOT NULL, -- when the waiter came
    expires_at INTEGER NOT NULL, -- a waiter that has not renewed its ticket by then is passed over
    holder     TEXT, -- who waits, as JSON: host, pid, label. For people
    PRIMARY KEY (name, ticket)
) STRICT, WITHOUT ROWID;
-- +down
DROP TABLE IF EXISTS ${table.tickets};
