package stock

import "strconv"

// sqlite: the count comes back in the same statement (RETURNING).
//
// A column of SQLite holds a value of any type: 'abc' >= 1 is true, and the sum of
// two integers that is too large is a REAL, silently. So the row must hold
// integers, and leave room for the sum. (That it is the only one with its id is
// seen before the COMMIT.)
func sqlite(q quoted) statements {
	set := q.ifVersion(", " + q.version + " = " + q.version + " + 1")
	where := "\nWHERE " + q.id + " = ?1"
	sound := sqliteSound(q)
	take := statement{order: "in", returning: true, query: "UPDATE " + q.table + " SET " + q.count + " = " + q.count + " - ?2" + set +
		where + " AND " + q.count + " >= ?2" + sound + "\nRETURNING " + q.count}
	put := statement{order: "in", returning: true, query: "UPDATE " + q.table + " SET " + q.count + " = " + q.count + " + ?2" + set +
		where + " AND " + q.count + " <= " + sqliteMaxInt + " - ?2" + sound + "\nRETURNING " + q.count}
	look := statement{order: "i", query: "SELECT " + sqliteCount(q) + ", " + sqliteProblem(q) + " FROM " + q.table + where}
	return statements{take: take, takeTx: take, put: put, putTx: put, look: look, lookTx: look, several: sqliteSeveral(q, set)}
}

// sqliteCount is the count of a row, if it is one.
func sqliteCount(q quoted) string {
	return "CASE typeof(" + q.count + ") WHEN 'integer' THEN " + q.count + " END"
}

// sqliteProblem tells why a row cannot be counted on.
func sqliteProblem(q quoted) string {
	version := q.ifVersion(" WHEN typeof(" + q.version + ") <> 'integer' THEN 'the version is ' || typeof(" + q.version + ") || ', and protects nothing'" +
		" WHEN " + q.version + " = " + sqliteMaxInt + " THEN 'the version cannot go up any further'")
	return "CASE WHEN typeof(" + q.count + ") <> 'integer' THEN 'the count is ' || typeof(" + q.count + ")" + version + " ELSE '' END"
}

// sqliteSound lets a row through that can be counted on.
func sqliteSound(q quoted) string {
	return " AND typeof(" + q.count + ") = 'integer'" +
		q.ifVersion(" AND typeof("+q.version+") = 'integer' AND "+q.version+" < "+sqliteMaxInt)
}

const sqliteMaxInt = "9223372036854775807"

// sqliteSeveral: there is one write lock, and so no order. It is taken first: a
// transaction that has read and then wants to write fails at once if somebody has
// written meanwhile, whatever busy_timeout says. An UPDATE takes it also where its
// WHERE lets nothing through.
func sqliteSeveral(q quoted, set string) several {
	arg := func(i int) string { return "?" + strconv.Itoa(i+1) }
	change := func(sign string) func(int) manyStatement {
		return func(n int) manyStatement {
			return manyStatement{args: idAndSumArgs, query: "UPDATE " + q.table + " SET " + q.count + " = " + q.count + " " + sign + " CASE " +
				list(n, " ", func(i int) string { return "WHEN " + q.id + " = " + arg(i) + " THEN " + arg(n+i) }) + " END" + set +
				"\nWHERE " + q.id + " IN (" + list(n, ", ", arg) + ")"}
		}
	}
	return several{
		grab:       "UPDATE " + q.table + " SET " + q.count + " = " + q.count + " WHERE 0",
		lockAtOnce: 100, // a compound SELECT has 500 parts at most
		// Of ids that name one row ('abc' and 'ABC') the first is found, and lockEach
		// finds the others; but who writes out a part for each pays for that in parsing.
		lockLines: remembered(func(n int) manyStatement {
			which := "CASE " + list(n, " ", func(i int) string { return "WHEN " + q.id + " = " + arg(i) + " THEN " + strconv.Itoa(i) }) + " END"
			return manyStatement{args: idArgs, query: "SELECT " + which + ", " + q.id + ", " + sqliteCount(q) + ", " + sqliteProblem(q) + " FROM " + q.table +
				"\nWHERE " + q.id + " IN (" + list(n, ", ", arg) + ")"}
		}),
		lockEach: func(n int) manyStatement {
			return manyStatement{args: idArgs, query: list(n, "\nUNION ALL ", func(i int) string {
				return "SELECT " + strconv.Itoa(i) + ", " + q.id + ", " + sqliteCount(q) + ", " + sqliteProblem(q) + " FROM " + q.table + " WHERE " + q.id + " = " + arg(i)
			})}
		},
		takeLines: remembered(change("-")), putLines: remembered(change("+")),
	}
}
