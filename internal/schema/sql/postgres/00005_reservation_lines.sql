-- compatible: 1
-- held_until repeats the reservation's expires_at while the line is open and is
-- NULL afterwards, so that what has expired for one stock row is found in one
-- small index, without a join: a take that finds too little sweeps first. There
-- is no foreign key, whose shared locks would come before the locks in order.
-- +up
CREATE TABLE IF NOT EXISTS ${table.reservation_lines} (
    reservation text COLLATE "C" NOT NULL,
    stock       text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    n           bigint           NOT NULL,
    held_until  timestamptz,
    PRIMARY KEY (reservation, stock, id)
);
CREATE INDEX IF NOT EXISTS ${name.reservation_lines_open} ON ${table.reservation_lines} (stock, id, held_until) WHERE held_until IS NOT NULL;
COMMENT ON TABLE ${table.reservation_lines} IS 'sqllock: what a reservation holds, one row per row of stock';
COMMENT ON COLUMN ${table.reservation_lines}.reservation IS 'id of the reservation';
COMMENT ON COLUMN ${table.reservation_lines}.stock IS 'the stock table';
COMMENT ON COLUMN ${table.reservation_lines}.id IS 'key of the row of the stock table, as text';
COMMENT ON COLUMN ${table.reservation_lines}.n IS 'how many are held';
COMMENT ON COLUMN ${table.reservation_lines}.held_until IS 'expires_at of the reservation while it is held. NULL once it is settled';
-- +down
DROP TABLE IF EXISTS ${table.reservation_lines};
