-- compatible: 1
-- One row per (name, slot), made on first touch and kept: release updates it. (A
-- table that is inserted into and deleted from deadlocks on InnoDB, even for
-- different names that share a gap.) No index on anything that changes. name is
-- VARBINARY: 'job', 'JOB' and 'job ' are three locks whatever the collations of
-- server and connection. Times are DATETIME(6) in UTC, written with
-- UTC_TIMESTAMP(6): TIMESTAMP has the session's time zone and its DST gaps.
-- +up
CREATE TABLE IF NOT EXISTS ${table.locks} (
    name         VARBINARY(255) NOT NULL
        COMMENT 'name of the lock, 1 to 255 bytes, compared byte by byte',
    slot         INT NOT NULL DEFAULT 0
        COMMENT '0 for a plain lock and for the header row of a name. Others are the slots of a semaphore',
    owner        VARBINARY(64) NULL
        COMMENT 'random identity of the last holder. NULL after a lock taken inside a transaction',
    token        BIGINT NOT NULL DEFAULT 0
        COMMENT 'fencing token. It only grows, and rows are kept so that it does',
    acquired_at  DATETIME(6) NULL
        COMMENT 'when the last holder got the lock',
    expires_at   DATETIME(6) NOT NULL DEFAULT '1970-01-01 00:00:00.000000'
        COMMENT 'end of the lease by the clock of the database. 1970 once released',
    hold_until   DATETIME(6) NOT NULL DEFAULT '1970-01-01 00:00:00.000000'
        COMMENT 'nobody else gets the lock before, even if its holder releases it or dies',
    freed_at     DATETIME(6) NULL
        COMMENT 'when it was released. Clean-up removes rows that have long been free',
    waited_since DATETIME(6) NULL
        COMMENT 'set by who waits: the release then sends a wake-up',
    holder       VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL
        COMMENT 'who the last holder was, as JSON: host, pid, label. For people, never compared',
    last_ticket  BIGINT NOT NULL DEFAULT 0
        COMMENT 'in the header row: the last number given to a waiter of the fair queue',
    slots        INT NULL
        COMMENT 'in the header row: how many slots the semaphore has. NULL for a plain lock',
    PRIMARY KEY (name, slot)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
  DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
  COMMENT = 'sqllock: one row per lock. Free when expires_at and hold_until have both passed';
-- +down
DROP TABLE IF EXISTS ${table.locks};
