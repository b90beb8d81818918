-- compatible: 1
-- One row per claim: the same user or order gets its first receipt again. A claim
-- is inserted once and hardly ever changed, and it is on the path of every hot
-- take: so there is no index but the key. PruneClaims walks the key.
-- +up
CREATE TABLE IF NOT EXISTS ${table.claims} (
    stock      text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    claim      text COLLATE "C" NOT NULL,
    owner      text COLLATE "C" NOT NULL,
    n          bigint           NOT NULL,
    left_after bigint,
    created_at timestamptz      NOT NULL,
    PRIMARY KEY (stock, id, claim)
);
COMMENT ON TABLE ${table.claims} IS 'sqllock: what was taken from stock, once per claim';
COMMENT ON COLUMN ${table.claims}.stock IS 'the stock table';
COMMENT ON COLUMN ${table.claims}.id IS 'key of the row of the stock table, as text';
COMMENT ON COLUMN ${table.claims}.claim IS 'identity of the take: a user, an order. 1 to 255 bytes';
COMMENT ON COLUMN ${table.claims}.owner IS 'random identity of the statement that took: tells a first receipt from a repeated one when the outcome was unknown';
COMMENT ON COLUMN ${table.claims}.n IS 'how many were taken';
COMMENT ON COLUMN ${table.claims}.left_after IS 'how many were left. NULL only inside the transaction that takes';
COMMENT ON COLUMN ${table.claims}.created_at IS 'when they were taken';
-- +down
DROP TABLE IF EXISTS ${table.claims};
