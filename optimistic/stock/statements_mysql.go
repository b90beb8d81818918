package stock

import (
	"strconv"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// mysql: MySQL and MariaDB.
//
// In autocommit the count comes back in the OK packet, through
// LAST_INSERT_ID(expr): neither has RETURNING for UPDATE. It stays in the session,
// where a caller's INSERT .. LAST_INSERT_ID() would store it: so not in a caller's
// transaction, where the count is read back.
//
// Under an empty sql_mode a sum that is too large saturates, counts as a changed row, and
// the surplus is gone. So the statement itself is strict, whatever the session is:
// by a hint on MySQL, by SET STATEMENT on MariaDB; both end with the statement.
// Strictness also makes an error of a text that is compared with a number.
//
// LAST_INSERT_ID(1.5 - 1) is 1, and would be stored: what is no integer is left
// alone, and so is what no signed 64-bit integer can hold.
func mysql(kind sqldb.Kind, q quoted) statements {
	update := mysqlStrictUpdate(kind)
	set := q.ifVersion(", " + q.version + " = " + q.version + " + 1")
	where := "\nWHERE " + q.id + " = ?"
	const maxInt = mysqlMaxInt
	whole := mysqlWhole(q)
	sound := " AND " + whole + q.ifVersion(" AND "+q.version+" IS NOT NULL")
	take := func(sum string) statement {
		return statement{order: "nin", query: update + q.table + " SET " + q.count + " = " + sum + set +
			where + " AND " + q.count + " >= ? AND " + q.count + " <= " + maxInt + sound}
	}
	put := func(sum string) statement {
		return statement{order: "nin", query: update + q.table + " SET " + q.count + " = " + sum + set +
			where + " AND " + q.count + " <= " + maxInt + " - ?" + sound}
	}
	look := "SELECT " + mysqlCount(q) + ", " + mysqlProblem(q) + " FROM " + q.table + where
	minus, plus := q.count+" - ?", q.count+" + ?"
	return statements{
		take: take("LAST_INSERT_ID(" + minus + ")"), takeTx: take(minus),
		put: put("LAST_INSERT_ID(" + plus + ")"), putTx: put(plus),
		look: statement{query: look, order: "i"},
		// Under REPEATABLE READ a plain read shows the snapshot, the UPDATE judged the
		// current row: only a locking read sees what it saw. The UPDATE has locked the
		// row there already, though it matched nothing; a shared lock could deadlock
		// with another taker's when both try again.
		lookTx:  statement{query: look + "\nFOR UPDATE", order: "i"},
		several: mysqlSeveral(q, update, look),
	}
}

const mysqlMaxInt = "9223372036854775807"

// mysqlStrictUpdate begins an UPDATE that is strict, whatever the session is.
func mysqlStrictUpdate(kind sqldb.Kind) string {
	if kind == sqldb.MariaDB {
		return "SET STATEMENT sql_mode='STRICT_ALL_TABLES' FOR UPDATE "
	}
	return "UPDATE /*+ SET_VAR(sql_mode='STRICT_ALL_TABLES') */ "
}

func mysqlWhole(q quoted) string { return q.count + " = FLOOR(" + q.count + ")" }

// mysqlCount is the count of a row, if it is one.
func mysqlCount(q quoted) string {
	return "CASE WHEN " + mysqlWhole(q) + " AND " + q.count + " <= " + mysqlMaxInt + " THEN FLOOR(" + q.count + ") END"
}

// mysqlProblem tells why a row cannot be counted on.
func mysqlProblem(q quoted) string {
	return "CASE WHEN NOT (" + mysqlWhole(q) + ") THEN 'the count is no integer'" +
		" WHEN " + q.count + " > " + mysqlMaxInt + " THEN 'the count is larger than " + mysqlMaxInt + "'" +
		q.ifVersion(" WHEN "+q.version+" IS NULL THEN 'the version is NULL, and protects nothing'") + " ELSE '' END"
}

// mysqlSeveral: the rows are locked one after the other, each by its own part of a
// UNION ALL, in the order of the parts. Each part finds its row by the unique key
// before the statement runs (access type const), whatever the optimizer thinks of
// the table. One range over all of them would lock in the order of an index as
// well, but for a small table, or many lines, it becomes a scan of the primary key:
// another order, and under REPEATABLE READ every row of the table is locked.
//
// In which order they have to be is the column's to say. A UNION with the column
// itself, of which it reads no row, has its collation; where the column is a number
// or a time (COERCIBILITY), and the ids came as text, they are compared as numbers.
// Reading the rows' ids instead would make a snapshot, of which MariaDB says
// later that it is too old (1020).
//
// The UPDATE looks each row up again by its key, for the same reason.
func mysqlSeveral(q quoted, update, look string) several {
	ofColumn := "SELECT " + q.id + " AS sqllock_id, 0 AS sqllock_n FROM " + q.table + " WHERE FALSE"
	of := func(column string) string { return q.table + "." + column }
	set := q.ifVersion(", " + of(q.version) + " = " + of(q.version) + " + 1")
	const one = " UNION ALL SELECT ?, ?"
	change := func(sign string) func(int) manyStatement {
		return func(n int) manyStatement {
			return manyStatement{args: keyAndSumArgs, query: update + "(" + ofColumn + strings.Repeat(one, n) + ") AS sqllock_wanted STRAIGHT_JOIN " + q.table +
				" ON " + of(q.id) + " = sqllock_id\nSET " + of(q.count) + " = " + of(q.count) + " " + sign + " sqllock_n" + set}
		}
	}
	return several{
		lockAtOnce: 100,
		lockLines: remembered(func(n int) manyStatement {
			return manyStatement{args: idArgs, query: list(n, "\nUNION ALL ", func(i int) string {
				return "(" + strings.Replace(look, "SELECT ", "SELECT "+strconv.Itoa(i)+", "+q.id+", ", 1) + " FOR UPDATE)"
			})}
		}),
		orderLines: func(n int) manyStatement {
			return manyStatement{args: idArgs, query: "SELECT sqllock_n FROM (" + ofColumn + list(n, "", func(i int) string { return " UNION ALL SELECT ?, " + strconv.Itoa(i) }) +
				") AS sqllock_wanted CROSS JOIN (SELECT " + q.id + " AS sqllock_column FROM " + q.table + " WHERE FALSE UNION ALL SELECT NULL) AS sqllock_of" +
				"\nORDER BY CASE WHEN COERCIBILITY(sqllock_column) >= 5 THEN CAST(sqllock_id AS DECIMAL(65)) END, sqllock_id"}
		},
		takeLines: remembered(change("-")), putLines: remembered(change("+")),
	}
}

// keyAndSumArgs are an id and what is wanted of it, for every row. An id that came as
// text is a number if the row's own id is: compared with a text, the column's
// key would be of no use.
func keyAndSumArgs(rows []*wanted) []any {
	args := make([]any, 0, 2*len(rows))
	for _, r := range rows {
		id := r.id
		if k, ok := r.key.(int64); ok {
			id = k
		}
		args = append(args, id, r.n)
	}
	return args
}
