-- compatible: 1
-- held_until repeats the reservation's expires_at while the line is open and is
-- NULL afterwards, so that what has expired for one stock row is found in one
-- small index, without a join: a take that finds too little sweeps first. There
-- is no foreign key, whose shared locks would come before the locks in order.
-- +up
CREATE TABLE IF NOT EXISTS ${table.reservation_lines} (
    -- sqllock: what a reservation holds, one row per row of stock
    reservation TEXT NOT NULL, -- id of the reservation
    stock       TEXT NOT NULL, -- the stock table
    id          TEXT NOT NULL, -- key of the row of the stock table, as text
    n           INTEGER NOT NULL, -- how many are held
    held_until  INTEGER, -- expires_at of the reservation while it is held. NULL once it is settled
    PRIMARY KEY (reservation, stock, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ${table.reservation_lines_open} ON ${name.reservation_lines} (stock, id, held_until) WHERE held_until IS NOT NULL;
-- +down
DROP TABLE IF EXISTS ${table.reservation_lines};
