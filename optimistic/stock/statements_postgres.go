package stock

import "strconv"

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
	sound := postgresSound(q, "$1")
	take := statement{order: "in", returning: true, query: "UPDATE " + q.table + " SET " + q.count + " = " + q.count + " - $2::bigint" + set +
		where + " AND " + q.count + " >= $2::bigint" + sound + "\nRETURNING " + q.count + "::bigint"}
	put := statement{order: "in", returning: true, query: "UPDATE " + q.table + " SET " + q.count + " = " + q.count + " + $2::bigint" + set +
		where + sound + "\nRETURNING " + q.count + "::bigint"}
	problem := postgresProblem(q)
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
		several:     postgresSeveral(q, problem, set),
	}
}

// postgresSound lets a row through that can be counted on; id is where its id stands.
func postgresSound(q quoted, id string) string {
	return " AND " + q.count + " = " + q.count + "::bigint" + q.ifVersion(" AND "+q.version+" IS NOT NULL") +
		"\n\tAND (SELECT count(*) FROM (SELECT FROM " + q.table + " WHERE " + q.id + " = " + id + " LIMIT 2) AS rows) = 1"
}

// postgresProblem tells why a row cannot be counted on.
func postgresProblem(q quoted) string {
	return "CASE WHEN " + q.count + " <> " + q.count + "::bigint THEN 'the count is no integer'" +
		q.ifVersion(" WHEN "+q.version+" IS NULL THEN 'the version is NULL, and protects nothing'") + " ELSE '' END"
}

// postgresSeveral: the server sorts, in the column's own order. LockRows is the
// topmost node of the plan, over the Sort or the index scan, and locks row by row
// as they come out of it; what it has waited for it reads again. (An UPDATE takes
// its locks in the order in which it happens to find the rows, and two of them
// deadlock.) NO KEY UPDATE is what the UPDATE itself will take: the foreign keys of
// order lines that point to the row pass it.
func postgresSeveral(q quoted, problem, set string) several {
	arg := func(i int) string { return "$" + strconv.Itoa(i+1) }
	ids := func(n int) string { return list(n, ", ", arg) }
	change := func(sign string, guard func(wanted string) string) func(int) manyStatement {
		return func(n int) manyStatement {
			wanted := "CASE " + list(n, " ", func(i int) string { return "WHEN " + q.id + " = " + arg(i) + " THEN " + arg(n+i) + "::bigint" }) + " END"
			return manyStatement{args: idAndSumArgs, query: "UPDATE " + q.table + " SET " + q.count + " = " + q.count + " " + sign + " " + wanted + set +
				"\nWHERE " + q.id + " IN (" + ids(n) + ")" + guard(wanted)}
		}
	}
	return several{
		lockAtOnce: MaxLines,
		lockLines: remembered(func(n int) manyStatement {
			which := "array_to_string(ARRAY[" + list(n, ", ", func(i int) string {
				return "CASE WHEN " + q.id + " = " + arg(i) + " THEN " + strconv.Itoa(i) + " END"
			}) + "], ',')"
			return manyStatement{args: idArgs, query: "SELECT " + which + ", " + q.id + "::text, " + q.count + "::bigint, " + problem + " FROM " + q.table +
				"\nWHERE " + q.id + " IN (" + ids(n) + ")\nORDER BY " + q.id + "\nFOR NO KEY UPDATE"}
		}),
		takeLines: remembered(change("-", func(wanted string) string { return " AND " + q.count + " >= " + wanted })),
		putLines:  remembered(change("+", func(string) string { return "" })),
	}
}
