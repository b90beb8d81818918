-- compatible: 1
-- Waiters of the fair queue, in the order of their numbers. A ticket has its own
-- expiry, which its waiter renews, so that a dead waiter is passed over.
-- +up
CREATE TABLE IF NOT EXISTS ${table.tickets} (
    name       VARBINARY(255) NOT NULL
        COMMENT 'name of the lock',
    ticket     BIGINT NOT NULL
        COMMENT 'place in the queue, numbered by last_ticket of the lock''s header row',
    owner      VARBINARY(64) NOT NULL
        COMMENT 'random identity of the waiter',
    created_at DATETIME(6) NOT NULL
        COMMENT 'when the waiter came',
    expires_at DATETIME(6) NOT NULL
        COMMENT 'a waiter that has not renewed its ticket by then is passed over',
    holder     VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL
        COMMENT 'who waits, as JSON: host, pid, label. For people',
    PRIMARY KEY (name, ticket)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
  DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
  COMMENT = 'sqllock: who waits for a lock in a fair queue';
-- +down
DROP TABLE IF EXISTS ${table.tickets};
