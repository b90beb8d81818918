package stock

// postgres: the count comes back in the same round trip (RETURNING).
//
// The number is cast to bigint: without the cast its type would be the column's,
// and what does not fit into an int4 would fail in the driver instead of being
// compared. What is assigned is cast back, and out of range is 22003, not a wrap.
//
// A count of 1.5 in a numeric column is no count, a version that is NULL would stay
// NULL, and protect nothing, and two rows with one id would both be changed: such
// rows are left alone. (The subquery is one more look into the same index.)
func postgres(q quoted) statements {
	set := q.ifVersion(", " + q.version + " = " + q.version + " + 1")
	where := "\nWHERE " + q.id + " = $1"
	sound := " AND " + q.count + " = " + q.count + "::bigint" + q.ifVersion(" AND "+q.version+" IS NOT NULL") +
		"\n\tAND (SELECT count(*) FROM (SELECT FROM " + q.table + " WHERE " + q.id + " = $1 LIMIT 2) AS rows) = 1"
	take := statement{order: "in", returning: true, query: "UPDATE " + q.table + " SET " + q.count + " = " + q.count + " - $2::bigint" + set +
		where + " AND " + q.count + " >= $2::bigint" + sound + "\nRETURNING " + q.count + "::bigint"}
	put := statement{order: "in", returning: true, query: "UPDATE " + q.table + " SET " + q.count + " = " + q.count + " + $2::bigint" + set +
		where + sound + "\nRETURNING " + q.count + "::bigint"}
	problem := "CASE WHEN " + q.count + " <> " + q.count + "::bigint THEN 'the count is no integer'" +
		q.ifVersion(" WHEN "+q.version+" IS NULL THEN 'the version is NULL, and protects nothing'") + " ELSE '' END"
	look := func(problem string) string {
		return "SELECT " + q.count + "::bigint, " + problem + " FROM " + q.table + where
	}
	return statements{
		take: take, takeTx: take, put: put, putTx: put,
		look: statement{query: look(problem), order: "i"},
		// In REPEATABLE READ the UPDATE has judged the snapshot, which may be old. A
		// locking read of a row that has changed since is 40001; KEY SHARE is not enough
		// for that. It makes others wait, so READ COMMITTED does without.
		lookTx: statement{order: "i", query: look("CASE WHEN current_setting('transaction_isolation') IN ('repeatable read', 'serializable')" +
			" THEN '" + snapshot + "' ELSE " + problem + " END")},
		lookCurrent: statement{query: look(problem) + "\nFOR SHARE", order: "i"},
	}
}
