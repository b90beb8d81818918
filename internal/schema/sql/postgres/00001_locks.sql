-- compatible: 1
-- One row per (name, slot), made on first touch and kept: release updates it.
-- No index on anything that changes and room in each page, so that an update is
-- HOT: it touches no index, and leaves nothing for vacuum that the next update
-- does not clean up itself. name is compared by bytes whatever the database's
-- collation: 'job' and 'JOB' are two locks.
-- +up
CREATE TABLE IF NOT EXISTS ${table.locks} (
    name         text COLLATE "C" NOT NULL,
    slot         integer          NOT NULL DEFAULT 0,
    owner        text COLLATE "C",
    token        bigint           NOT NULL DEFAULT 0,
    acquired_at  timestamptz,
    expires_at   timestamptz      NOT NULL DEFAULT '1970-01-01 00:00:00+00',
    hold_until   timestamptz      NOT NULL DEFAULT '1970-01-01 00:00:00+00',
    freed_at     timestamptz,
    waited_since timestamptz,
    holder       text,
    last_ticket  bigint           NOT NULL DEFAULT 0,
    slots        integer,
    PRIMARY KEY (name, slot)
) WITH (fillfactor = 50);
COMMENT ON TABLE ${table.locks} IS 'sqllock: one row per lock. Free when expires_at and hold_until have both passed';
COMMENT ON COLUMN ${table.locks}.name IS 'name of the lock, 1 to 255 bytes, compared byte by byte';
COMMENT ON COLUMN ${table.locks}.slot IS '0 for a plain lock and for the header row of a name. Others are the slots of a semaphore';
COMMENT ON COLUMN ${table.locks}.owner IS 'random identity of the last holder. NULL after a lock taken inside a transaction';
COMMENT ON COLUMN ${table.locks}.token IS 'fencing token. It only grows, and rows are kept so that it does';
COMMENT ON COLUMN ${table.locks}.acquired_at IS 'when the last holder got the lock';
COMMENT ON COLUMN ${table.locks}.expires_at IS 'end of the lease by the clock of the database. 1970 once released';
COMMENT ON COLUMN ${table.locks}.hold_until IS 'nobody else gets the lock before, even if its holder releases it or dies';
COMMENT ON COLUMN ${table.locks}.freed_at IS 'when it was released. Clean-up removes rows that have long been free';
COMMENT ON COLUMN ${table.locks}.waited_since IS 'set by who waits: the release then sends a wake-up';
COMMENT ON COLUMN ${table.locks}.holder IS 'who the last holder was, as JSON: host, pid, label. For people, never compared';
COMMENT ON COLUMN ${table.locks}.last_ticket IS 'in the header row: the last number given to a waiter of the fair queue';
COMMENT ON COLUMN ${table.locks}.slots IS 'in the header row: how many slots the semaphore has. NULL for a plain lock';
-- +down
DROP TABLE IF EXISTS ${table.locks};
