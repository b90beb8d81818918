package stock

import (
	"strconv"

	"github.com/sqlnative/locks/sqldb"
)

// sqliteHolds: who writes has the one write lock, so there is nothing to lock and
// nothing to skip; a reader that turns writer behind somebody else's back fails
// (SQLITE_BUSY_SNAPSHOT) instead of writing what it made of an old state. The clock
// is the machine's, in milliseconds.
func sqliteHolds(n holdNames) holdStatements {
	const now = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
	const key = `CASE typeof($T.$id) WHEN 'blob' THEN '\x' || lower(hex($T.$id)) ELSE CAST($T.$id AS TEXT) END`
	in := func(reservations int) string { return "(" + holes(sqldb.SQLite, 1, reservations) + ")" }
	rows := func(lines int) string {
		return list(lines, ", ", func(i int) string { return "(" + holes(sqldb.SQLite, 1+2*i, 2) + ")" })
	}
	expired := "SELECT r.id, r.expires_at FROM $R r\nWHERE r.state = 'held' AND r.expires_at <= " + now +
		" AND EXISTS (SELECT 1 FROM $L l WHERE l.reservation = r.id AND l.stock = $stock)"
	oldest := "\nORDER BY r.expires_at, r.id LIMIT " + strconv.Itoa(sweepBatch)
	return holdStatements{
		tables: n.compile(`SELECT count(*) FROM main.sqlite_master WHERE type = 'table' AND name IN ($names)`),
		key: func(hole string) string {
			return n.compile("(SELECT "+key+" FROM $T WHERE $id = ") + hole + ")"
		},
		insert: n.compile(`INSERT INTO $R (id, owner, state, created_at, expires_at, note)
VALUES (?1, ?2, 'held', ` + now + `, 0, ?3)`),
		remove:  n.compile(`DELETE FROM $R WHERE id = ?1 AND owner = ?2`),
		start:   n.compile(`UPDATE $R SET created_at = ` + now + `, expires_at = ` + now + ` + ?1 WHERE id = ?2`),
		expires: n.compile(`SELECT expires_at FROM $R WHERE id = ?1`),
		insertLines: func(lines int) string {
			return n.compile("INSERT INTO $L (reservation, stock, id, n, held_until) VALUES ") + list(lines, ", ", func(i int) string {
				return "(" + hole(sqldb.SQLite, 1+4*i) + n.compile(", $stock, ") + holes(sqldb.SQLite, 2+4*i, 2) + n.compile(", (SELECT expires_at FROM $R WHERE id = ") + hole(sqldb.SQLite, 4+4*i) + "))"
			})
		},
		arbitrate: n.compile(`INSERT INTO $R (id, owner, state, created_at, expires_at) VALUES (?1, ?2, 'expired', ` + now + `, ` + now + `)`),
		lock:      n.compile(`SELECT state, expires_at, settled_at FROM $R WHERE id = ?1 AND owner = ?2`),
		settle: n.compile(`UPDATE $R SET state = ?1, settled_at = ` + now + `
WHERE id = ?2 AND owner = ?3 AND state = 'held' AND settled_at IS NULL AND expires_at > ` + now),
		linesOf: func(k int) string {
			return n.compile("SELECT reservation, id, stock = $stock FROM $L WHERE reservation IN ") + in(k)
		},
		open: func(k int) string {
			return n.compile("SELECT reservation, id, n FROM $L WHERE (reservation, id) IN (VALUES ") + rows(k) + n.compile(") AND stock = $stock AND held_until IS NOT NULL")
		},
		close: func(k int) string {
			return n.compile("UPDATE $L SET held_until = NULL WHERE (reservation, id) IN (VALUES ") + rows(k) + n.compile(") AND stock = $stock AND held_until IS NOT NULL")
		},
		hasExpired: n.compile(`EXISTS (SELECT 1 FROM $L l
	WHERE l.stock = $stock AND l.id = ` + key + ` AND l.held_until IS NOT NULL AND l.held_until <= ` + now + `)`),
		expiredFor: n.compile(`SELECT reservation, id FROM $L
WHERE stock = $stock AND id = (SELECT ` + key + ` FROM $T WHERE $id = ?1) AND held_until IS NOT NULL AND held_until <= ` + now + `
ORDER BY held_until LIMIT ` + strconv.Itoa(sweepBatch)),
		expiredAll:  n.compile(expired + oldest),
		expiredNext: n.compile(expired + "\n\tAND (r.expires_at, r.id) > (?1, ?2)" + oldest),
		lockExpired: func(k int, _ bool) string {
			return n.compile("SELECT id FROM $R WHERE id IN ") + in(k) + " AND state = 'held' AND expires_at <= " + now + "\nORDER BY id"
		},
		stillOpen: func(k int) string {
			return n.compile("SELECT DISTINCT reservation FROM $L WHERE reservation IN ") + in(k) + " AND held_until IS NOT NULL"
		},
		expire: func(k int) string {
			return n.compile("UPDATE $R SET state = 'expired', settled_at = coalesce(settled_at, "+now+") WHERE id IN ") + in(k) + " AND state = 'held'"
		},
		begin: func(k int) string {
			return n.compile("UPDATE $R SET settled_at = "+now+" WHERE id IN ") + in(k) + " AND state = 'held' AND settled_at IS NULL"
		},
	}
}
