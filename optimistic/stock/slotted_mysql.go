package stock

import (
	"fmt"

	"github.com/sqlnative/locks/sqldb"
)

// mysqlSlots: MySQL and MariaDB.
//
// An UPDATE waits for a row lock also where its WHERE is false. So the slot is found by
// a SELECT that passes over who is at one, in a derived table of one row, which
// STRAIGHT_JOIN has evaluated first. COALESCE asks the second SELECT only if the first
// has found nothing: a UNION would lock two slots for every take. HAVING: MariaDB looks
// for a slot that is NULL under the number 0, and waits for that.
//
// MariaDB's derived tables cost more than the take itself. There an UPDATE of one slot
// can say that it waits for nothing, and comes first (see slotChange.first). Not in a
// caller's transaction, where innodb_rollback_on_timeout may make of that timeout the
// end of the transaction.
//
// Several slots are locked each by its own part of a UNION ALL, which finds its row by
// the unique key, whatever the optimizer thinks of the table: see mysqlSeveral.
func mysqlSlots(kind sqldb.Kind, q slotNames) slotStatements {
	r := q.replacer("$problem", mysqlProblem(q.quoted), "$whole", mysqlCount(q.quoted), "$update", mysqlStrictUpdate(kind),
		"$sound", q.count+" <= "+mysqlMaxInt+" AND "+mysqlWhole(q.quoted)+q.ifVersion(" AND "+q.version+" IS NOT NULL"),
		"$max", mysqlMaxInt, "$set", q.ifVersion(", "+q.version+" = "+q.version+" + 1"),
		"$joined", q.ifVersion(", "+q.table+"."+q.version+" = "+q.table+"."+q.version+" + 1"),
		"$raise", q.ifVersion(", "+q.table+"."+q.version+" = "+q.table+"."+q.version+" + w.v"), "$versionOr0", versionOr0(q, "COALESCE("+q.version+", 0)"),
		"$list", "JSON_TABLE(?, '$[*]' COLUMNS (slot BIGINT PATH '$.slot', n BIGINT PATH '$.n', v BIGINT PATH '$.v')) AS w")
	sql := func(order, text string) slotStatement { return slotStatement{query: r.Replace(text), order: order} }
	change := func(sign, guard string) (c slotChange) {
		find := func(compare string) string {
			return "(SELECT $slot FROM $table WHERE $id = ? AND $slot " + compare + " ? AND $sound AND " + guard + " ORDER BY $slot LIMIT 1 FOR UPDATE SKIP LOCKED)"
		}
		c.free = sql("irnirnin", `$update(SELECT COALESCE(
	`+find(">=")+`,
	`+find("<")+`) AS sqllock_slot HAVING sqllock_slot IS NOT NULL) AS sqllock_free STRAIGHT_JOIN $table ON $table.$id = ? AND $table.$slot = sqllock_slot
SET $table.$count = $table.$count `+sign+` ?$joined`)
		one := `$table SET $count = $count ` + sign + ` ?$set
WHERE $id = ? AND $slot = ? AND $sound AND ` + guard
		c.one = sql("nirn", `$update`+one)
		if kind == sqldb.MariaDB {
			first := sql("nirn", `SET STATEMENT sql_mode='STRICT_ALL_TABLES', innodb_lock_wait_timeout=0 FOR UPDATE `+one)
			c.first = &first
		}
		return c
	}
	const rows = `SELECT $slot, $whole, $versionOr0, $problem FROM $table WHERE $id = ?`
	lock := list(mysqlSlotsAtOnce, "\nUNION ALL ", func(i int) string {
		return "(" + rows + fmt.Sprintf(" AND $slot = ? + %d FOR UPDATE)", i)
	})
	order := list(mysqlSlotsAtOnce, "", func(int) string { return "ir" })
	return slotStatements{
		take: change("-", "$count >= ?"), put: change("+", "$count <= $max - ?"),
		rows: sql("i", rows+` ORDER BY $slot`),
		sum: statement{order: "i", query: r.Replace(`SELECT CAST(LEAST(SUM($whole), $max) AS SIGNED),
	CASE WHEN MIN($slot) <> 0 OR MAX($slot) <> COUNT(*) - 1 THEN '` + notContiguous + `'
		WHEN COUNT($count) <> COUNT(*) THEN 'the count of a slot is NULL' ELSE MAX($problem) END
FROM $table WHERE $id = ? HAVING COUNT(*) > 0`)},
		last:   sql("i", `SELECT COALESCE(MAX($slot), -1) FROM $table WHERE $id = ?`),
		header: sql("i", `SELECT $slot FROM $table WHERE $id = ? AND $slot = 0 FOR UPDATE`),
		lock:   sql(order, lock), lockAtOnce: mysqlSlotsAtOnce,
		set: sql("Ji", `$update$list STRAIGHT_JOIN $table ON $table.$id = ? AND $table.$slot = w.slot
SET $table.$count = w.n$raise`),
		insert: sql("Ji", `INSERT INTO $table ($id, $slot, $count`+q.ifVersion(", $version")+`)
SELECT h.$id, w.slot, w.n`+q.ifVersion(", h.$version")+` FROM $list STRAIGHT_JOIN $table AS h ON h.$id = ? AND h.$slot = 0`),
		remove: sql("Ji", `DELETE $table FROM $list STRAIGHT_JOIN $table ON $table.$id = ? AND $table.$slot = w.slot`),
	}
}

// mysqlSlotsAtOnce is how many slots are locked by one statement.
const mysqlSlotsAtOnce = 64
