package stock

import (
	"strconv"

	"github.com/sqlnative/locks/sqldb"
)

// mysqlHolds: MySQL and MariaDB.
//
// What is locked is named by its whole primary key, with FORCE INDEX, since a small
// table would be scanned otherwise, and rows of others locked: under REPEATABLE READ,
// in a caller's transaction, whatever searches a range locks the gaps in it, and
// others could not reserve. So every search is a plain read, which may be as old as
// the snapshot, and what it has found is then locked and looked at as it is now. Only
// where a plain read does not see the lines of a reservation that a locking read has
// just shown, since both are younger than the snapshot, is a range locked (linesNow).
//
// A statement's clock stops before it waits for a row lock: what may wait decides
// nothing by the clock, and what decides by it waits for nothing.
//
// The text of a key is bytes, in utf8mb4 if the column has a character set: which of
// several equal spellings it is, the row says, not the caller.
func mysqlHolds(n holdNames) holdStatements {
	const now = "UTC_TIMESTAMP(6)"
	const kind = sqldb.MySQL // the placeholders are MariaDB's too
	const key = "CASE WHEN COLLATION($T.$id) = 'binary' THEN CAST($T.$id AS BINARY) ELSE CAST(CONVERT($T.$id USING utf8mb4) AS BINARY) END"
	in := func(reservations int) string { return "(" + holes(kind, 1, reservations) + ")" }
	rows := func(lines int) string {
		return "(" + list(lines, " OR ", func(int) string { return n.compile("(reservation = ? AND stock = $stock AND id = ?)") }) + ")"
	}
	// The oldest are read through the index by state; a join that begins with the
	// lines would read them all.
	expired := "SELECT r.id, CAST(r.expires_at AS CHAR) FROM $R r FORCE INDEX (`reservations_open`)\nWHERE r.state = 'held' AND r.expires_at <= " + now +
		" AND EXISTS (SELECT 1 FROM $L l WHERE l.reservation = r.id AND l.stock = $stock)"
	oldest := "\nORDER BY r.expires_at, r.id LIMIT " + strconv.Itoa(sweepBatch)
	return holdStatements{
		tables: n.compile(`SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = $schema AND TABLE_NAME IN ($names)`),
		key:    func(hole string) string { return n.compile("(SELECT "+key+" FROM $T WHERE $id = ") + hole + ")" },
		insert: n.compile(`INSERT INTO $R (id, owner, state, created_at, expires_at, note)
VALUES (?, ?, 'held', ` + now + `, '1970-01-01 00:00:00', ?)`),
		remove:  n.compile(`DELETE FROM $R WHERE id = ? AND owner = ?`),
		start:   n.compile(`UPDATE $R SET created_at = ` + now + `, expires_at = ` + now + ` + INTERVAL ? MICROSECOND WHERE id = ?`),
		expires: n.compile(`SELECT CAST(expires_at AS CHAR) FROM $R WHERE id = ?`),
		insertLines: func(lines int) string {
			return n.compile("INSERT INTO $L (reservation, stock, id, n, held_until) VALUES ") + list(lines, ", ", func(int) string {
				return n.compile("(?, $stock, ?, ?, (SELECT expires_at FROM $R WHERE id = ?))")
			})
		},
		arbitrate: n.compile(`INSERT INTO $R (id, owner, state, created_at, expires_at) VALUES (?, ?, 'expired', ` + now + `, ` + now + `)`),
		lock:      n.compile("SELECT state, CAST(expires_at AS CHAR), CAST(settled_at AS CHAR) FROM $R WHERE id = ? AND owner = ? FOR UPDATE"),
		settle: n.compile(`UPDATE $R SET state = ?, settled_at = ` + now + `
WHERE id = ? AND owner = ? AND state = 'held' AND settled_at IS NULL AND expires_at > ` + now),
		linesOf: func(k int) string {
			return n.compile("SELECT reservation, id, stock = $stock FROM $L WHERE reservation IN ") + in(k)
		},
		linesNow: func(k int) string {
			return n.compile("SELECT reservation, id, stock = $stock FROM $L FORCE INDEX (PRIMARY) WHERE reservation IN ") + in(k) + "\nFOR UPDATE"
		},
		open: func(k int) string {
			return n.compile("SELECT reservation, id, n FROM $L FORCE INDEX (PRIMARY) WHERE ") + rows(k) + " AND held_until IS NOT NULL\nFOR UPDATE"
		},
		close: func(k int) string {
			return n.compile("UPDATE $L FORCE INDEX (PRIMARY) SET held_until = NULL WHERE ") + rows(k) + " AND held_until IS NOT NULL"
		},
		hasExpired: n.compile(`EXISTS (SELECT 1 FROM $L l
	WHERE l.stock = $stock AND l.id = ` + key + ` AND l.held_until <= ` + now + `)`),
		expiredFor: n.compile(`SELECT reservation, id FROM $L
WHERE stock = $stock AND id = (SELECT ` + key + ` FROM $T WHERE $id = ?) AND held_until <= ` + now + `
ORDER BY held_until LIMIT ` + strconv.Itoa(sweepBatch)),
		expiredAll:  n.compile(expired + oldest),
		expiredNext: n.compile(expired + "\n\tAND (r.expires_at, r.id) > (?, ?)" + oldest),
		// If it waits, the clock has stopped before: what had expired then has now. With SKIP
		// LOCKED it waits for nobody, and yet, on MariaDB 11, was the victim of a deadlock
		// (1213, seen under load, seldom): it counts as waiting, it seems, while it finds
		// that a row is locked. Whoever calls it tries again, or is told.
		lockExpired: func(k int, wait bool) string {
			return n.compile("SELECT id FROM $R FORCE INDEX (PRIMARY) WHERE id IN ") + in(k) + " AND state = 'held' AND expires_at <= " + now +
				"\nORDER BY id FOR UPDATE" + unless(wait, " SKIP LOCKED")
		},
		stillOpen: func(k int) string {
			return n.compile("SELECT DISTINCT reservation FROM $L WHERE reservation IN ") + in(k) + " AND held_until IS NOT NULL"
		},
		expire: func(k int) string {
			return n.compile("UPDATE $R FORCE INDEX (PRIMARY) SET state = 'expired', settled_at = COALESCE(settled_at, "+now+") WHERE id IN ") + in(k) + " AND state = 'held'"
		},
		begin: func(k int) string {
			return n.compile("UPDATE $R FORCE INDEX (PRIMARY) SET settled_at = "+now+" WHERE id IN ") + in(k) + " AND state = 'held' AND settled_at IS NULL"
		},
	}
}
