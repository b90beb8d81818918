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
func mysql(kind sqldb.Kind, q quoted) statements {
	update := "UPDATE /*+ SET_VAR(sql_mode='STRICT_ALL_TABLES') */ "
	if kind == sqldb.MariaDB {
		update = "SET STATEMENT sql_mode='STRICT_ALL_TABLES' FOR UPDATE "
	}
	set := q.ifVersion(", " + q.version + " = " + q.version + " + 1")
	where := "\nWHERE " + q.id + " = ?"
	notNull := q.ifVersion(" AND " + q.version + " IS NOT NULL")
	take := func(sum string) statement {
		return statement{order: "nin", query: update + q.table + " SET " + q.count + " = " + sum + set +
			where + " AND " + q.count + " >= ?" + notNull}
	}
	put := func(sum string) statement {
		return statement{order: "ni", query: update + q.table + " SET " + q.count + " = " + sum + set +
			where + " AND " + q.count + " IS NOT NULL" + notNull}
	}
	problem := "''"
	if q.version != "" {
		problem = "CASE WHEN " + q.version + " IS NULL THEN 'the version is NULL, and protects nothing' ELSE '' END"
	}
	look := "SELECT " + q.count + ", " + problem + " FROM " + q.table + where
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
