package optimistic

import "github.com/sqlnative/locks/sqldb"

// postgres: a version is cast to bigint, or its type would be the column's, and one
// that is too large for an int4 would fail in the driver instead of being compared.
//
// Two rows with one key would both be changed: they are left alone. (The subquery is
// one more look into the same index.)
//
// In READ COMMITTED the statement that was refused has waited for whoever was changing
// the row, and judged what came of it; a plain read sees no less. In REPEATABLE READ it
// has judged the snapshot, which may be old: there a locking read of a row that has
// changed since is 40001; KEY SHARE is not enough for that. It makes others wait, so
// READ COMMITTED does without. What no read shows is a row that was inserted after the
// snapshot.
func postgres() dialect {
	return dialect{
		quote:  sqldb.Postgres.QuoteColumn,
		update: "UPDATE ", remove: "DELETE FROM ", numbered: "$", number: "::bigint", fresh: "<=",
		sole: func(table, key string) string {
			return "\n\tAND (SELECT count(*) FROM (SELECT FROM " + table + " WHERE " + key + " LIMIT 2) AS rows) = 1"
		},
		sound: func(string) string { return "" },
		read:  func(column string) string { return column + "::bigint" },
		problem: func(column string) string {
			return "CASE WHEN " + column + " IS NULL THEN '" + isNull + "' WHEN " + column + " <> " + column + "::bigint THEN 'is no integer' ELSE '' END"
		},
		current: "\nFOR SHARE",
		level:   "current_setting('transaction_isolation') IN ('repeatable read', 'serializable')",
	}
}
