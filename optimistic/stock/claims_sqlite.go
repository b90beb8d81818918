package stock

import (
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// sqliteClaims: there is one writer, and what it reads is what is. The first
// statement takes the write lock, and a claim that is there changes nothing.
//
// The stock table is known as main.NAME, in lower case: SQLite takes T_Bonus and t_bonus
// for one.
func sqliteClaims(table, name string, q quoted) claimStatements {
	const now = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
	of := identity(sqldb.SQLite, name, q)
	own := `CASE typeof($id) WHEN 'blob' THEN '\x' || lower(hex($id)) ELSE CAST($id AS TEXT) END`
	own = strings.ReplaceAll(own, "$id", q.id)
	c := claimCompiler{claims: table, mark: "?", numbered: true, names: strings.NewReplacer("$claims", claimsName, "$stock", of, "$table", q.table, "$id", q.id,
		"$count", q.count, "$version", q.ifVersion(", "+q.version+" = "+q.version+" + 1"), "$sound", sqliteSound(q), "$own", own, "$now", now,
		"$left", sqliteCount(q), "$problem", sqliteProblem(q), "$pk", "stock = "+of+" AND id = {k} AND claim = {c}")}
	find := c.statement(`SELECT owner, n, left_after, created_at FROM $claims WHERE $pk`)
	look := c.statement(`SELECT $own, $left, $problem FROM $table WHERE $id = {i}`)
	return claimStatements{
		insert: c.statement(`INSERT INTO $claims (stock, id, claim, owner, n, created_at) VALUES ($stock, {k}, {c}, {o}, {n}, $now)
ON CONFLICT DO NOTHING RETURNING created_at`),
		find: find, findTx: find, look: look, lookTx: look,
		take: c.statement(`UPDATE $table SET $count = $count - {n}$version WHERE $id = {i} AND $count >= {n}$sound`),
		note: c.statement(`UPDATE $claims SET left_after = {l} WHERE $pk`),
		drop: c.statement(`DELETE FROM $claims WHERE $pk AND owner = {o}`),
		page: c.plain(`SELECT id, claim, created_at < $now - ?1 FROM $claims
WHERE stock = $stock AND (id, claim) > (?2, ?3) ORDER BY id, claim LIMIT ?4`),
		prune: func(int) string {
			return c.plain(`DELETE FROM $claims
WHERE stock = $stock AND (id, claim) >= (?1, ?2) AND (id, claim) <= (?3, ?4) AND created_at < $now - ?5`)
		},
	}
}
