package stock

// postgresSlots: a take finds its slot and changes it in one statement. The CTEs find
// at most one row: the second is not read where the first has found one. SKIP LOCKED
// passes over who is at a slot; a slot that has changed since the statement began is
// locked and read again, and again by the UPDATE, so both have the guard. (One that
// does not let it through then stays locked.) What the statement misses because its
// snapshot is too old, the next one sees.
//
// A locking SELECT locks in the order in which its rows come out of the sort, or of the
// index. Who holds slot 0 is alone in locking several, so there is nobody that another
// order could deadlock with.
func postgresSlots(q slotNames) slotStatements {
	set := q.ifVersion(", " + q.version + " = " + q.version + " + 1")
	r := q.replacer("$sound", q.count+" = "+q.count+"::bigint"+q.ifVersion(" AND "+q.version+" IS NOT NULL"),
		"$problem", postgresProblem(q.quoted), "$isolated", "current_setting('transaction_isolation') IN ('repeatable read', 'serializable')",
		"$set", set, "$raise", q.ifVersion(", "+q.version+" = "+q.table+"."+q.version+" + w.v"), "$versionOr0", versionOr0(q, "COALESCE("+q.version+"::bigint, 0)"),
		"$list", "jsonb_to_recordset($2::jsonb) AS w(slot bigint, n bigint, v bigint)")
	sql := func(order, text string) slotStatement { return slotStatement{query: r.Replace(text), order: order} }
	change := func(sign, guard string) slotChange {
		find := func(which string) string {
			return `SELECT $slot FROM $table WHERE $id = $1 AND $slot ` + which + ` AND $sound` + guard + `
	ORDER BY $slot LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED`
		}
		update := `UPDATE $table SET $count = $count ` + sign + ` $2::bigint$set WHERE $id = $1 AND $sound` + guard + ` AND $slot = `
		free := sql("inr", `WITH a AS (
	`+find(`>= $3::bigint`)+`
), b AS (
	`+find(`< $3::bigint AND NOT EXISTS (SELECT FROM a)`)+`
)
`+update+`(SELECT $slot FROM a UNION ALL SELECT $slot FROM b)`)
		return slotChange{free: free, one: sql("inr", update+`$3::bigint`)}
	}
	rows := `SELECT $slot::bigint, $count::bigint, $versionOr0, $problem FROM $table WHERE $id = $1 ORDER BY $slot`
	return slotStatements{
		take: change("-", " AND "+q.count+" >= $2::bigint"),
		put:  change("+", ""),
		rows: sql("i", rows),
		// See lookTx of postgres.
		rowsTx: sql("i", `SELECT $slot::bigint, $count::bigint, $versionOr0, CASE WHEN $isolated THEN '`+snapshot+`' ELSE $problem END
FROM $table WHERE $id = $1 ORDER BY $slot`),
		rowsCurrent: sql("i", rows+` FOR SHARE`),
		sum: statement{order: "i", query: r.Replace(`SELECT least(sum($count), 9223372036854775807)::bigint,
	CASE WHEN min($slot) <> 0 OR max($slot) <> count(*) - 1 THEN '` + notContiguous + `'
		WHEN count($count) <> count(*) THEN 'the count of a slot is NULL' ELSE max($problem) END
FROM $table WHERE $id = $1 HAVING count(*) > 0`)},
		last: sql("i", `SELECT COALESCE(max($slot), -1)::bigint FROM $table WHERE $id = $1`),
		// NO KEY UPDATE is what an UPDATE takes: foreign keys that point to the row pass.
		header:     sql("i", `SELECT $slot::bigint FROM $table WHERE $id = $1 AND $slot = 0 FOR NO KEY UPDATE`),
		lock:       sql("i", rows+` FOR NO KEY UPDATE`),
		lockAtOnce: MaxSlots + 1,
		set:        sql("iJ", `UPDATE $table SET $count = w.n$raise FROM $list WHERE $table.$id = $1 AND $table.$slot = w.slot`),
		insert: sql("iJ", `INSERT INTO $table ($id, $slot, $count`+q.ifVersion(", $version")+`)
SELECT h.$id, w.slot, w.n`+q.ifVersion(", h.$version")+` FROM $table AS h, $list WHERE h.$id = $1 AND h.$slot = 0`),
		remove: sql("iJ", `DELETE FROM $table USING $list WHERE $table.$id = $1 AND $table.$slot = w.slot`),
	}
}

// versionOr0 is what reads the version, or 0 if there is none.
func versionOr0(q slotNames, text string) string {
	if q.version == "" {
		return "0"
	}
	return text
}
