package stock

// postgres: the count comes back in the same round trip (RETURNING).
//
// The number is cast to bigint: without the cast its type would be the column's,
// and what does not fit into an int4 would fail in the driver instead of being
// compared. What is assigned is cast back, and out of range is 22003, not a wrap.
//
// A version that is NULL would stay NULL, and protect nothing: such a row is not
// changed.
func postgres(q quoted) statements {
	set := q.ifVersion(", " + q.version + " = " + q.version + " + 1")
	where := "\nWHERE " + q.id + " = $1"
	notNull := q.ifVersion(" AND " + q.version + " IS NOT NULL")
	take := statement{order: "in", returning: true, query: "UPDATE " + q.table + " SET " + q.count + " = " + q.count + " - $2::bigint" + set +
		where + " AND " + q.count + " >= $2::bigint" + notNull + "\nRETURNING " + q.count + "::bigint"}
	put := statement{order: "in", returning: true, query: "UPDATE " + q.table + " SET " + q.count + " = " + q.count + " + $2::bigint" + set +
		where + " AND " + q.count + " IS NOT NULL" + notNull + "\nRETURNING " + q.count + "::bigint"}
	problem := "''"
	if q.version != "" {
		problem = "CASE WHEN " + q.version + " IS NULL THEN 'the version is NULL, and protects nothing' ELSE '' END"
	}
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
