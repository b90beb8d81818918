-- compatible: 1
-- One row per claim: the same user or order gets its first receipt again. A claim
-- is inserted once and hardly ever changed, and it is on the path of every hot
-- take: so there is no index but the key. PruneClaims walks the key.
-- +up
CREATE TABLE IF NOT EXISTS ${table.claims} (
    stock      VARBINARY(191) NOT NULL
        COMMENT 'the stock table',
    id         VARBINARY(255) NOT NULL
        COMMENT 'key of the row of the stock table, as text',
    claim      VARBINARY(255) NOT NULL
        COMMENT 'identity of the take: a user, an order. 1 to 255 bytes',
    owner      VARBINARY(64) NOT NULL
        COMMENT 'random identity of the statement that took: tells a first receipt from a repeated one when the outcome was unknown',
    n          BIGINT NOT NULL
        COMMENT 'how many were taken',
    left_after BIGINT NULL
        COMMENT 'how many were left. NULL only inside the transaction that takes',
    created_at DATETIME(6) NOT NULL
        COMMENT 'when they were taken',
    PRIMARY KEY (stock, id, claim)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
  DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
  COMMENT = 'sqllock: what was taken from stock, once per claim';
-- +down
DROP TABLE IF EXISTS ${table.claims};
