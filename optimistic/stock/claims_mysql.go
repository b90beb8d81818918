package stock

import (
	"fmt"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// mysqlClaims: a claim that is there is error 1062, which undoes that statement and
// nothing else. INSERT IGNORE would make warnings of all other errors as well, and ON
// DUPLICATE KEY UPDATE id = id counts a row or none, as the DSN's clientFoundRows has
// it: what is no error is then no proof of anything.
//
// Whoever makes a claim locks its gate first: a row of this table, of which there are
// some for every stock table, and which is never deleted. Without it, the interleaving:
// several insert one claim, and wait for the first; it is refused, or rolls back, and
// its row goes; all who have waited inherit a lock on the gap where it was, and each
// waits for the others' to insert. That is so for every kind of INSERT, whatever it
// asks for; a locking read before it does not help, for they all read nothing and then
// insert. Behind a gate there is one that inserts, and a queue. Gate and claim are one
// statement, so a gate costs no round trip. (What has no owner is a gate.)
//
// A duplicate key leaves a shared lock on the claim. So it is read with one (LOCK IN
// SHARE MODE, which MariaDB knows too), and as it is, whatever the snapshot shows.
//
// The row is locked and read, and then row and receipt are changed together, by a
// statement that says what will be left: which of two tables an UPDATE changes first,
// and so which value the other would see, is not told. What reads created_at locks as
// well, for a plain read would make a snapshot.
func mysqlClaims(kind sqldb.Kind, table, name string, q quoted) claimStatements {
	of := identity(kind, name, q)
	version := q.ifVersion(", " + q.table + "." + q.version + " = " + q.table + "." + q.version + " + 1")
	c := claimCompiler{claims: table, mark: "?", names: strings.NewReplacer("$claims", claimsName, "$stock", of, "$table", q.table, "$id", q.id,
		"$count", q.count, "$version", version, "$left", mysqlCount(q), "$problem", mysqlProblem(q), "$update ", mysqlStrictUpdate(kind),
		"$pk", "stock = "+of+" AND id = {k} AND claim = {c}")}
	find := c.statement(`SELECT owner, n, left_after, CAST(created_at AS CHAR) FROM $claims WHERE $pk`)
	findTx := find
	findTx.query += " LOCK IN SHARE MODE"
	return claimStatements{
		insert: c.statement(`INSERT INTO $claims (stock, id, claim, owner, n, created_at) SELECT gate.stock, {k}, {c}, {o}, {n}, UTC_TIMESTAMP(6)
FROM $claims AS gate WHERE gate.stock = $stock AND gate.id = '' AND gate.claim = {g} FOR UPDATE`),
		hasGate:    c.statement(`SELECT COUNT(*) FROM $claims WHERE stock = $stock AND id = '' AND claim = {g}`),
		countGates: c.plain(`SELECT COUNT(*) FROM $claims WHERE stock = $stock AND id = '' AND owner = ''`),
		gates: c.plain(`INSERT INTO $claims (stock, id, claim, owner, n, created_at) VALUES ` + list(claimGates, ", ", func(i int) string {
			return fmt.Sprintf("($stock, '', X'%x', '', 0, UTC_TIMESTAMP(6))", claimGate(i))
		}) + ` ON DUPLICATE KEY UPDATE n = 0`),
		find:   find,
		findTx: findTx,
		look:   c.statement(`SELECT CAST($id AS BINARY), $left, $problem FROM $table WHERE $id = {i}`),
		lookTx: c.statement(`SELECT CAST($id AS BINARY), $left, $problem, (SELECT CAST(created_at AS CHAR) FROM $claims WHERE $pk FOR UPDATE)
FROM $table WHERE $id = {i} FOR UPDATE`),
		take: c.statement(`$update $table INNER JOIN $claims ON $claims.stock = $stock AND $claims.id = {k} AND $claims.claim = {c}
SET $table.$count = $table.$count - {n}$version, $claims.left_after = {l}
WHERE $table.$id = {i} AND $table.$count >= {n}`),
		drop: c.statement(`DELETE FROM $claims WHERE $pk AND owner = {o}`),
		page: c.plain(`SELECT id, claim, created_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND FROM $claims
WHERE stock = $stock AND (id > ? OR id = ? AND claim > ?) AND owner <> '' ORDER BY id, claim LIMIT ?`),
		// A DELETE cannot skip what is locked; a subquery that locks can. LIMIT keeps it
		// one, and STRAIGHT_JOIN keeps it first.
		prune: func(claims int) string {
			return c.plain(`DELETE gone FROM (
	SELECT id, claim FROM $claims WHERE stock = $stock AND (` + list(claims, " OR ", func(int) string { return "id = ? AND claim = ?" }) + `)
		AND created_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND LIMIT 10000 FOR UPDATE SKIP LOCKED
) AS old STRAIGHT_JOIN $claims AS gone ON gone.stock = $stock AND gone.id = old.id AND gone.claim = old.claim`)
		},
	}
}
