package stock

import (
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// postgresClaims: ON CONFLICT DO NOTHING waits for whoever has inserted the claim and
// not yet committed, and then does not abort the transaction, as a duplicate key
// would, after which nothing more runs in it. Under REPEATABLE READ and
// SERIALIZABLE a claim that the snapshot does not show is 40001.
//
// The take and the receipt are one statement. It sees the claim, which an earlier
// one has inserted; the row it judges as it is after all waiting, as any UPDATE
// does. It does not hang on the snapshot that it began with.
//
// The stock table is known by schema and name, however it was found: 't_bonus' of
// two schemas is two tables, and t_bonus and shop.t_bonus are one. (A regclass is
// looked up anew when search_path changes.) COLLATE "C": claims compare bytes,
// whatever the stock's column does; 'abc' and 'ABC' can be one row, and have one own
// id.
func postgresClaims(table string, q quoted) claimStatements {
	of := identity(sqldb.Postgres, "", q)
	c := claimCompiler{claims: table, mark: "$", numbered: true, names: strings.NewReplacer("$claims", claimsName, "$stock", of, "$table", q.table, "$id", q.id,
		"$count", q.count, "$version", q.ifVersion(", "+q.version+" = "+q.version+" + 1"), "$sound", postgresSound(q, "{i}"),
		"$problem", postgresProblem(q), "$pk", "stock = "+of+" AND id = {k} AND claim = {c}")}
	find := c.statement(`SELECT owner, n, left_after, created_at FROM $claims WHERE $pk`)
	look := func(problem string) claimStatement {
		return c.statement(`SELECT $id::text, $count::bigint, ` + problem + ` FROM $table WHERE $id = {i}`)
	}
	lookCurrent := look("$problem")
	lookCurrent.query += " FOR SHARE"
	return claimStatements{
		insert: c.statement(`INSERT INTO $claims (stock, id, claim, owner, n, created_at) VALUES ($stock, {k}, {c}, {o}, {n}, clock_timestamp())
ON CONFLICT DO NOTHING RETURNING created_at`),
		find: find, findTx: find,
		look: look("$problem"),
		lookTx: look("CASE WHEN current_setting('transaction_isolation') IN ('repeatable read', 'serializable')" +
			" THEN '" + snapshot + "' ELSE $problem END"),
		lookCurrent: lookCurrent,
		take: c.statement(`WITH taken AS (
	UPDATE $table SET $count = $count - {n}::bigint$version
	WHERE $id = {i} AND $count >= {n}::bigint$sound AND $id::text COLLATE "C" = {k}
	RETURNING $count::bigint AS left_after
)
UPDATE $claims SET left_after = taken.left_after FROM taken WHERE $pk RETURNING taken.left_after`),
		drop: c.statement(`DELETE FROM $claims WHERE $pk AND owner = {o}`),
		page: c.plain(`SELECT id, claim, created_at < clock_timestamp() - $1::bigint * interval '1 microsecond' FROM $claims
WHERE stock = $stock AND (id, claim) > ($2, $3) ORDER BY id, claim LIMIT $4::bigint`),
		prune: func(int) string {
			return c.plain(`DELETE FROM $claims WHERE stock = $stock AND (id, claim) IN (
	SELECT id, claim FROM $claims WHERE stock = $stock AND (id, claim) >= ($1, $2) AND (id, claim) <= ($3, $4)
		AND created_at < clock_timestamp() - $5::bigint * interval '1 microsecond'
	FOR UPDATE SKIP LOCKED)`)
		},
	}
}
