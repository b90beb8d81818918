// Sqllock-migrate makes the tables of sqllock in a database, brings them up to
// date, and compares them with what the library needs.
//
//	sqllock-migrate up                    apply what is pending
//	sqllock-migrate down                  undo the last migration
//	sqllock-migrate status                what has been applied, what has not
//	sqllock-migrate version               the version that the tables have
//	sqllock-migrate sql DATABASE          print the SQL, for other migration tools
//	sqllock-migrate check                 compare the live tables with what is needed
//	sqllock-migrate version-column TABLE  a version column for a table of yours
//
// The database is named by --dsn or SQLLOCK_DSN. Each command's --help has
// examples.
//
// # Contract
//
// Results go to stdout, messages to stderr. Exit codes:
//
//	0  done
//	1  failed; check, and an up that has nothing to do: the tables differ
//	2  wrong usage, a malformed DSN included; nothing was done
//	3  migrations are pending (status --exit-code)
//	4  a lock was not had within --lock-timeout, which bounds all waiting: for
//	   another process that migrates, and for tables that are in use
//
// With --json a command that ends with 0 or 3, and check also with 1, writes one
// JSON object to stdout; after another code stdout is empty. Fields may be added;
// those that are here keep name and meaning. Every object about a live database
// has "database" (postgres, mysql, mariadb, sqlite), "schema" and "table_prefix".
//
//	up, down        {"dry_run": bool, "from": version, "to": version,
//	                 "steps": [{"version": n, "name": string, "direction": "up"|"down",
//	                            "statements": [SQL, …]}, …]}
//	                steps are those of this process; with dry_run those to be taken,
//	                and "to" is where they lead
//	status          {"version": n, "latest": n, "pending": count,
//	                 "migrations": [{"version": n, "name": string, "applied": bool,
//	                                 "applied_at": RFC 3339 or null,
//	                                 "known": false if by a later release}, …]}
//	version         {"version": n, "latest": n}; version 0: there are no tables
//	sql             {"database": string, "sql": string}
//	check           {"ok": bool, "problems": [{"table": string, "column": string or "",
//	                 "problem": string, "fix": what to do; SQL for what is missing}, …]}
//	version-column  {"table": string, "column": string, "sql": string,
//	                 "applied": was it run now, "existed": was it there before}
//
// Of an SQLite file that does not exist, "status" and "up --dry-run" answer as if it
// were empty; "up" alone makes it.
//
// The first SIGINT or SIGTERM ends the command after the migration that is
// running, the second at once.
package main
