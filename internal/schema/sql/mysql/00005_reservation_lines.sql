-- compatible: 1
-- held_until repeats the reservation's expires_at while the line is open and is
-- NULL afterwards, so that what has expired for one stock row is one range of
-- one index, without a join: a take that finds too little sweeps first. There is
-- no foreign key, whose shared locks would come before the locks in order.
-- +up
CREATE TABLE IF NOT EXISTS ${table.reservation_lines} (
    reservation VARBINARY(64) NOT NULL
        COMMENT 'id of the reservation',
    stock       VARBINARY(191) NOT NULL
        COMMENT 'the stock table',
    id          VARBINARY(255) NOT NULL
        COMMENT 'key of the row of the stock table, as text',
    n           BIGINT NOT NULL
        COMMENT 'how many are held',
    held_until  DATETIME(6) NULL
        COMMENT 'expires_at of the reservation while it is held. NULL once it is settled',
    PRIMARY KEY (reservation, stock, id),
    KEY reservation_lines_open (stock, id, held_until)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
  DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
  COMMENT = 'sqllock: what a reservation holds, one row per row of stock';
-- +down
DROP TABLE IF EXISTS ${table.reservation_lines};
