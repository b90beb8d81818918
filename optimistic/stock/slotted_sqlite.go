package stock

// sqliteSlots: there is one write lock, so no slot is ever locked by somebody else, and
// the first that lets the statement through is taken.
func sqliteSlots(q slotNames) slotStatements {
	r := q.replacer("$sound", "typeof("+q.count+") = 'integer'"+q.ifVersion(" AND typeof("+q.version+") = 'integer' AND "+q.version+" < "+sqliteMaxInt),
		"$problem", sqliteProblem(q.quoted), "$set", q.ifVersion(", "+q.version+" = "+q.version+" + 1"), "$whole", sqliteCount(q.quoted),
		"$raise", q.ifVersion(", "+q.version+" = "+q.version+" + w.v"), "$versionOr0", versionOr0(q, "CASE typeof("+q.version+") WHEN 'integer' THEN "+q.version+" ELSE 0 END"),
		"$list", "(SELECT json_extract(value, '$.slot') AS slot, json_extract(value, '$.n') AS n, json_extract(value, '$.v') AS v FROM json_each(?2)) AS w")
	sql := func(order, text string) slotStatement { return slotStatement{query: r.Replace(text), order: order} }
	change := func(sign, guard string) slotChange {
		update := `UPDATE $table SET $count = $count ` + sign + ` ?2$set WHERE $id = ?1 AND $sound` + guard + ` AND $slot = `
		free := sql("inr", update+`(
	SELECT $slot FROM $table WHERE $id = ?1 AND $sound`+guard+` ORDER BY $slot < ?3, $slot LIMIT 1)`)
		return slotChange{free: free, one: sql("inr", update+`?3`)}
	}
	rows := sql("i", `SELECT $slot, $whole, $versionOr0, $problem FROM $table WHERE $id = ?1 ORDER BY $slot`)
	return slotStatements{
		take: change("-", " AND "+q.count+" >= ?2"), put: change("+", " AND "+q.count+" <= "+sqliteMaxInt+" - ?2"),
		rows: rows, rowsTx: rows, lock: rows, lockAtOnce: MaxSlots + 1,
		sum: statement{order: "i", query: r.Replace(`SELECT SUM($whole),
	CASE WHEN MIN($slot) <> 0 OR MAX($slot) <> COUNT(*) - 1 THEN '` + notContiguous + `'
		WHEN COUNT($count) <> COUNT(*) THEN 'the count of a slot is NULL' ELSE MAX($problem) END
FROM $table WHERE $id = ?1 HAVING COUNT(*) > 0`)},
		last:   sql("i", `SELECT COALESCE(MAX($slot), -1) FROM $table WHERE $id = ?1`),
		header: sql("i", `SELECT $slot FROM $table WHERE $id = ?1 AND $slot = 0`),
		grab:   r.Replace(`UPDATE $table SET $count = $count WHERE 0`),
		set:    sql("iJ", `UPDATE $table SET $count = w.n$raise FROM $list WHERE $table.$id = ?1 AND $table.$slot = w.slot`),
		insert: sql("iJ", `INSERT INTO $table ($id, $slot, $count`+q.ifVersion(", $version")+`)
SELECT h.$id, w.slot, w.n`+q.ifVersion(", h.$version")+` FROM $table AS h, $list WHERE h.$id = ?1 AND h.$slot = 0`),
		remove: sql("iJ", `DELETE FROM $table WHERE $id = ?1 AND $slot IN (SELECT w.slot FROM $list)`),
	}
}
