package stock

import "github.com/sqlnative/locks/sqldb"

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
	update := "UPDATE /*+ SET_VAR(sql_mode='STRICT_ALL_TABLES') */ "
	if kind == sqldb.MariaDB {
		update = "SET STATEMENT sql_mode='STRICT_ALL_TABLES' FOR UPDATE "
	}
	set := q.ifVersion(", " + q.version + " = " + q.version + " + 1")
	where := "\nWHERE " + q.id + " = ?"
	const maxInt = "9223372036854775807"
	whole := q.count + " = FLOOR(" + q.count + ")"
	sound := " AND " + whole + q.ifVersion(" AND "+q.version+" IS NOT NULL")
	take := func(sum string) statement {
		return statement{order: "nin", query: update + q.table + " SET " + q.count + " = " + sum + set +
			where + " AND " + q.count + " >= ? AND " + q.count + " <= " + maxInt + sound}
	}
	put := func(sum string) statement {
		return statement{order: "nin", query: update + q.table + " SET " + q.count + " = " + sum + set +
			where + " AND " + q.count + " <= " + maxInt + " - ?" + sound}
	}
	look := "SELECT CASE WHEN " + whole + " AND " + q.count + " <= " + maxInt + " THEN FLOOR(" + q.count + ") END," +
		" CASE WHEN NOT (" + whole + ") THEN 'the count is no integer'" +
		" WHEN " + q.count + " > " + maxInt + " THEN 'the count is larger than " + maxInt + "'" +
		q.ifVersion(" WHEN "+q.version+" IS NULL THEN 'the version is NULL, and protects nothing'") +
		" ELSE '' END FROM " + q.table + where
	minus, plus := q.count+" - ?", q.count+" + ?"
	return statements{
		take: take("LAST_INSERT_ID(" + minus + ")"), takeTx: take(minus),
		put: put("LAST_INSERT_ID(" + plus + ")"), putTx: put(plus),
		look: statement{query: look, order: "i"},
		// Under REPEATABLE READ a plain read shows the snapshot, the UPDATE judged the
		// current row: only a locking read sees what it saw. The UPDATE has locked the
		// row there already, though it matched nothing; a shared lock could deadlock
		// with another taker's when both try again.
		lookTx: statement{query: look + "\nFOR UPDATE", order: "i"},
	}
}
