-- compatible: 1
-- Waiters of the fair queue, in the order of their numbers. A ticket has its own
-- expiry, which its waiter renews, so that a dead waiter is passed over. Hence
-- the room in each page, as for locks.
-- +up
CREATE TABLE IF NOT EXISTS ${table.tickets} (
    name       text COLLATE "C" NOT NULL,
    ticket     bigint           NOT NULL,
    owner      text COLLATE "C" NOT NULL,
    created_at timestamptz      NOT NULL,
    expires_at timestamptz      NOT NULL,
    holder     text,
    PRIMARY KEY (name, ticket)
) WITH (fillfactor = 50);
COMMENT ON TABLE ${table.tickets} IS 'sqllock: who waits for a lock in a fair queue';
COMMENT ON COLUMN ${table.tickets}.name IS 'name of the lock';
COMMENT ON COLUMN ${table.tickets}.ticket IS 'place in the queue, numbered by last_ticket of the lock''s header row';
COMMENT ON COLUMN ${table.tickets}.owner IS 'random identity of the waiter';
COMMENT ON COLUMN ${table.tickets}.created_at IS 'when the waiter came';
COMMENT ON COLUMN ${table.tickets}.expires_at IS 'a waiter that has not renewed its ticket by then is passed over';
COMMENT ON COLUMN ${table.tickets}.holder IS 'who waits, as JSON: host, pid, label. For people';
-- +down
DROP TABLE IF EXISTS ${table.tickets};
