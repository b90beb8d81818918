package optimistic

import "github.com/sqlnative/locks/sqldb"

// mysql: MySQL and MariaDB.
//
// Under an empty sql_mode a version that is too large saturates, counts as a changed
// row where another column has changed, and from then on protects nothing; a text that
// is too long is cut. So the statement itself is strict, whatever the session is: by a
// hint on MySQL, by SET STATEMENT on MariaDB; both end with the statement. The mode
// replaces the session's, so it has all that a strict session could have against bad
// dates too. Strictness also makes an error of a text that is compared with a number,
// which 'abc' = 0 would not be in a DELETE otherwise.
//
// The server counts changed rows, or found ones with clientFoundRows. An update always
// changes the version. A token that is equal would change nothing: it is not written,
// but read under a lock.
//
// After a refusal, a plain read in REPEATABLE READ shows the snapshot, while the
// statement has judged the row as it is: only a locking read sees that. FOR UPDATE, for
// two that share the row's lock and then try again would deadlock.
func mysql(kind sqldb.Kind) dialect {
	const mode = "sql_mode='STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO'"
	update, remove := "UPDATE /*+ SET_VAR("+mode+") */ ", "DELETE /*+ SET_VAR("+mode+") */ FROM "
	if kind == sqldb.MariaDB {
		update, remove = "SET STATEMENT "+mode+" FOR UPDATE ", "SET STATEMENT "+mode+" FOR DELETE FROM "
	}
	const maxInt = "9223372036854775807"
	return dialect{
		quote:  kind.QuoteColumn,
		update: update, remove: remove, fresh: "<",
		sole:  func(string, string) string { return "" },
		sound: func(string) string { return "" },
		read: func(column string) string {
			return "CASE WHEN " + column + " = FLOOR(" + column + ") AND " + column + " <= " + maxInt + " THEN FLOOR(" + column + ") END"
		},
		problem: func(column string) string {
			return "CASE WHEN " + column + " IS NULL THEN '" + isNull + "' WHEN " + column + " <> FLOOR(" + column + ") THEN 'is no integer'" +
				" WHEN " + column + " > " + maxInt + " THEN 'is larger than " + maxInt + "' ELSE '' END"
		},
		current: "\nFOR UPDATE",
	}
}
