package stock

import (
	"strconv"

	"github.com/sqlnative/locks/sqldb"
)

// postgresHolds: the clock is clock_timestamp(). It stands in a subquery where an
// index is searched by it, for it is volatile, and would be compared row by row.
//
// Under REPEATABLE READ a row that somebody has changed since the snapshot is 40001
// as soon as it is locked or changed: nothing is decided by an old state. One that was
// made since is not seen, and no lock tells (level).
func postgresHolds(n holdNames) holdStatements {
	const past = "<= (SELECT clock_timestamp())"
	in := func(reservations int) string { return "(" + holes(sqldb.Postgres, 1, reservations) + ")" }
	rows := func(lines int) string {
		return list(lines, ", ", func(i int) string { return "(" + holes(sqldb.Postgres, 1+2*i, 2) + ")" })
	}
	expired := "SELECT r.id, r.expires_at FROM $R r\nWHERE r.state = 'held' AND r.expires_at " + past +
		" AND EXISTS (SELECT FROM $L l WHERE l.reservation = r.id AND l.stock = $stock)"
	oldest := "\nORDER BY r.expires_at, r.id LIMIT " + strconv.Itoa(sweepBatch)
	return holdStatements{
		// A query of a table that is not there, or not ours to use, would abort the
		// caller's transaction.
		tables: n.compile(`SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $schema AND c.relname IN ($names) AND has_schema_privilege(n.oid, 'USAGE')
	AND has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'UPDATE')`),
		key: func(hole string) string { return n.compile("(SELECT $id::text FROM $T WHERE $id = ") + hole + ")" },
		insert: n.compile(`INSERT INTO $R (id, owner, state, created_at, expires_at, note)
VALUES ($1, $2, 'held', clock_timestamp(), 'epoch', $3)`),
		remove: n.compile(`DELETE FROM $R WHERE id = $1 AND owner = $2`),
		start: n.compile(`UPDATE $R SET created_at = c.now, expires_at = c.now + $1::bigint * interval '1 microsecond'
FROM (SELECT clock_timestamp() AS now) c WHERE id = $2`),
		expires: n.compile(`SELECT expires_at FROM $R WHERE id = $1`),
		insertLines: func(lines int) string {
			return n.compile("INSERT INTO $L (reservation, stock, id, n, held_until) VALUES ") + list(lines, ", ", func(i int) string {
				return "(" + hole(sqldb.Postgres, 1+4*i) + n.compile(", $stock, ") + holes(sqldb.Postgres, 2+4*i, 2) + n.compile(", (SELECT expires_at FROM $R WHERE id = ") + hole(sqldb.Postgres, 4+4*i) + "))"
			})
		},
		arbitrate: n.compile(`INSERT INTO $R (id, owner, state, created_at, expires_at) VALUES ($1, $2, 'expired', clock_timestamp(), clock_timestamp())`),
		lock:      n.compile(`SELECT state, expires_at, settled_at FROM $R WHERE id = $1 AND owner = $2 FOR UPDATE`),
		level:     `SELECT current_setting('transaction_isolation') IN ('repeatable read', 'serializable')`,
		settle: n.compile(`UPDATE $R SET state = $1, settled_at = clock_timestamp()
WHERE id = $2 AND owner = $3 AND state = 'held' AND settled_at IS NULL AND expires_at > clock_timestamp()`),
		linesOf: func(k int) string {
			return n.compile("SELECT reservation, id, CASE WHEN stock = $stock THEN 1 ELSE 0 END FROM $L WHERE reservation IN ") + in(k)
		},
		open: func(k int) string {
			return n.compile("SELECT reservation, id, n FROM $L WHERE (reservation, id) IN (") + rows(k) + n.compile(") AND stock = $stock AND held_until IS NOT NULL")
		},
		close: func(k int) string {
			return n.compile("UPDATE $L SET held_until = NULL WHERE (reservation, id) IN (") + rows(k) + n.compile(") AND stock = $stock AND held_until IS NOT NULL")
		},
		hasExpired: n.compile(`CASE WHEN EXISTS (SELECT FROM $L l
	WHERE l.stock = $stock AND l.id = $T.$id::text COLLATE "C" AND l.held_until IS NOT NULL AND l.held_until ` + past + `) THEN 1 ELSE 0 END`),
		expiredFor: n.compile(`SELECT reservation, id FROM $L
WHERE stock = $stock AND id = (SELECT $id::text COLLATE "C" FROM $T WHERE $id = $1) AND held_until IS NOT NULL AND held_until ` + past + `
ORDER BY held_until LIMIT ` + strconv.Itoa(sweepBatch)),
		expiredAll:  n.compile(expired + oldest),
		expiredNext: n.compile(expired + "\n\tAND (r.expires_at, r.id) > ($1::timestamptz, $2)" + oldest),
		lockExpired: func(k int, wait bool) string {
			return n.compile("SELECT id FROM $R WHERE id IN ") + in(k) + " AND state = 'held' AND expires_at " + past + "\nORDER BY id FOR UPDATE" + unless(wait, " SKIP LOCKED")
		},
		stillOpen: func(k int) string {
			return n.compile("SELECT DISTINCT reservation FROM $L WHERE reservation IN ") + in(k) + " AND held_until IS NOT NULL"
		},
		expire: func(k int) string {
			return n.compile("UPDATE $R SET state = 'expired', settled_at = coalesce(settled_at, clock_timestamp()) WHERE id IN ") + in(k) + " AND state = 'held'"
		},
		begin: func(k int) string {
			return n.compile("UPDATE $R SET settled_at = clock_timestamp() WHERE id IN ") + in(k) + " AND state = 'held' AND settled_at IS NULL"
		},
	}
}
