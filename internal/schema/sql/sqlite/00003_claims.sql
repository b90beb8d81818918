-- compatible: 1
-- One row per claim: the same user or order gets its first receipt again. A claim
-- is inserted once and hardly ever changed, and it is on the path of every hot
-- take: so there is no index but the key. PruneClaims walks the key.
-- +up
CREATE TABLE IF NOT EXISTS ${table.claims} (
    -- sqllock: what was taken from stock, once per claim
    stock      TEXT NOT NULL, -- the stock table
    id         TEXT NOT NULL, -- key of the row of the stock table, as text
    claim      TEXT NOT NULL, -- identity of the take: a user, an order. 1 to 255 bytes
    owner      TEXT NOT NULL, -- random identity of the statement that took: tells a first receipt from a repeated one when the outcome was unknown
    n          INTEGER NOT NULL, -- how many were taken
    left_after INTEGER, -- how many were left. NULL only inside the transaction that takes
    created_at INTEGER NOT NULL, -- when they were taken
    PRIMARY KEY (stock, id, claim)
) STRICT, WITHOUT ROWID;
-- +down
DROP TABLE IF EXISTS ${table.claims};
