package optimistic

import "github.com/sqlnative/locks/sqldb"

// sqlite: a column holds a value of any type, and the sum of two integers that is too
// large is a REAL, silently. So the row must hold an integer. (That it is the only one
// with its key is seen before the COMMIT, or told to the caller's transaction; that
// there is a next version is known before anything runs.)
//
// Whoever has run an UPDATE has the database's write lock, and sees it as it is.
func sqlite() dialect {
	return dialect{
		quote:  sqldb.SQLite.QuoteColumn,
		update: "UPDATE ", remove: "DELETE FROM ", numbered: "?", fresh: "<=",
		sole:  func(string, string) string { return "" },
		sound: func(column string) string { return " AND typeof(" + column + ") = 'integer'" },
		read: func(column string) string {
			return "CASE typeof(" + column + ") WHEN 'integer' THEN " + column + " END"
		},
		problem: func(column string) string {
			return "CASE typeof(" + column + ") WHEN 'integer' THEN '' WHEN 'null' THEN '" + isNull + "' ELSE 'is ' || typeof(" + column + ") || ', not an integer' END"
		},
	}
}
