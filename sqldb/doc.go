// Package sqldb is the database as a lock sees it: a [DB] made of the pool that
// a program already has, a [Tx] made of any transaction on it, and the few
// things that every strategy needs from them and no driver gives.
//
//   - Values, NULLs, times and affected rows mean the same through every driver
//     ([Rows.Scan]).
//   - Errors are classified in one place, through any wrapping ([ClassOf],
//     [Retryable], [Uncertain]).
//   - A statement that changes something outside of a caller's transaction runs
//     detached from the caller's context, so that a context that ends never
//     leaves a change behind an error ([DB.Change], [DB.InTx]).
//   - Transactions are repeated in one place ([Retry]).
//
// A DB comes from an adapter: sqldb/pgdb for PostgreSQL, sqldb/mysqldb for MySQL
// and MariaDB, sqldb/sqlitedb for SQLite. The package itself imports the
// standard library only.
package sqldb
