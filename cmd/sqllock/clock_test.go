package main

import "github.com/sqlnative/locks/sqldb"

// nowSQL is the database's clock, as the columns of the tables have it.
func nowSQL(kind sqldb.Kind) string {
	switch kind {
	case sqldb.Postgres:
		return "clock_timestamp()"
	case sqldb.SQLite:
		return "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
	}
	return "UTC_TIMESTAMP(6)"
}
