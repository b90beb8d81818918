package stock

// sqlite: the count comes back in the same statement (RETURNING).
//
// A column of SQLite holds a value of any type: 'abc' >= 1 is true, and the sum of
// two integers that is too large is a REAL, silently. So the row must hold
// integers, and leave room for the sum. (That it is the only one with its id is
// seen before the COMMIT.)
func sqlite(q quoted) statements {
	const maxInt = "9223372036854775807"
	set := q.ifVersion(", " + q.version + " = " + q.version + " + 1")
	where := "\nWHERE " + q.id + " = ?1"
	sound := " AND typeof(" + q.count + ") = 'integer'" +
		q.ifVersion(" AND typeof("+q.version+") = 'integer' AND "+q.version+" < "+maxInt)
	take := statement{order: "in", returning: true, query: "UPDATE " + q.table + " SET " + q.count + " = " + q.count + " - ?2" + set +
		where + " AND " + q.count + " >= ?2" + sound + "\nRETURNING " + q.count}
	put := statement{order: "in", returning: true, query: "UPDATE " + q.table + " SET " + q.count + " = " + q.count + " + ?2" + set +
		where + " AND " + q.count + " <= " + maxInt + " - ?2" + sound + "\nRETURNING " + q.count}
	version := q.ifVersion(" WHEN typeof(" + q.version + ") <> 'integer' THEN 'the version is ' || typeof(" + q.version + ") || ', and protects nothing'" +
		" WHEN " + q.version + " = " + maxInt + " THEN 'the version cannot go up any further'")
	look := statement{order: "i", query: "SELECT CASE typeof(" + q.count + ") WHEN 'integer' THEN " + q.count + " END," +
		" CASE WHEN typeof(" + q.count + ") <> 'integer' THEN 'the count is ' || typeof(" + q.count + ")" + version + " ELSE '' END" +
		" FROM " + q.table + where}
	return statements{take: take, takeTx: take, put: put, putTx: put, look: look, lookTx: look}
}
