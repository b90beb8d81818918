-- compatible: 1
-- A reservation is settled once: its state leaves 'held' and never comes back.
-- With state in front, the sweep of everything that has expired reads what is
-- still open only, however long the history is.
-- +up
CREATE TABLE IF NOT EXISTS ${table.reservations} (
    id         VARBINARY(64) NOT NULL
        COMMENT 'random identity of the reservation',
    owner      VARBINARY(64) NOT NULL
        COMMENT 'random identity of who reserved',
    state      VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
        COMMENT 'held, confirmed, cancelled or expired',
    created_at DATETIME(6) NOT NULL
        COMMENT 'when it was made',
    expires_at DATETIME(6) NOT NULL
        COMMENT 'from then on, by the clock of the database, it can no longer be confirmed',
    settled_at DATETIME(6) NULL
        COMMENT 'when it was confirmed, cancelled or swept',
    note       VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL
        COMMENT 'free text of who reserved',
    PRIMARY KEY (id),
    KEY reservations_open (state, expires_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
  DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
  COMMENT = 'sqllock: stock that is held for a time, then confirmed or given back';
-- +down
DROP TABLE IF EXISTS ${table.reservations};
