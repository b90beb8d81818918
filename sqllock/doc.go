// Package sqllock is the lock table: named locks that expire, renew, wait and
// fence, in PostgreSQL, MySQL, MariaDB or SQLite, on nothing but one table.
//
// There is one row for each name, made on first touch and kept. A row is free when
// its expires_at and hold_until have both passed by the database's clock; who takes
// it writes a random owner and a larger token. A release writes the epoch into
// expires_at. (Tables that are inserted into and deleted from deadlock on InnoDB,
// and forget their tokens.) The SQL, with the reason for its shape, stands in
// statements_postgres.go, statements_mysql.go and statements_sqlite.go.
//
// Acquire on a row that exists is one statement and never waits inside the server;
// so is Release. A try that fails writes nothing. All locks of a Locker that are due
// are renewed by one statement, on a connection of its own, so that a busy pool
// cannot starve it.
//
// # How a lock is lost, told in order
//
// A renewal is due when a third of the TTL has passed since the last one was sent.
// If it fails, it is tried again until the lease can no longer be trusted (sent +
// TTL - max(TTL/10, 50 ms)); then the lock is lost, whether the database answers or
// not. If the row is found to be another's, it is lost at once. If the row was
// skipped, since somebody's transaction is at it, it is read again without a lock:
// if it is still ours it is neither renewed nor lost, and soon tried again.
//
// # Guard
//
// [lock.Lock.Guard] locks the row in the caller's outermost transaction: FOR KEY
// SHARE on PostgreSQL, which renewal and release pass and a take-over does not; a
// shared lock on MySQL and MariaDB, where a renewal skips the row, so that a guarded
// transaction must be shorter than the TTL; an UPDATE that takes the write lock of
// the file on SQLite; an UPDATE of the row on Galera and group replication, which
// certify writes only. A snapshot from before the lock was had is
// [lock.ErrStaleSnapshot], or a serialization failure ([sqldb.Retryable]). Inside a
// savepoint a guard guards nothing: ROLLBACK TO drops the row lock on PostgreSQL.
// pgx's nested transactions are refused; those of others cannot be told.
package sqllock
