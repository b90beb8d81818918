// Package migrations makes the tables of sqllock in a database, and takes them
// away again.
//
//	err := migrations.Up(ctx, db)
//
// It can be called by every process of a program at its start: one of them
// migrates, the others wait for it, and where nothing is to be done it is one
// statement that takes no lock. It runs on goose, with a table of versions of its
// own beside the tables ([sqldb.TablePrefix] + "schema_version"); an application's
// own goose, its version table and its registry of Go migrations are neither seen
// nor touched. Who applies migrations by other means takes the text of [SQL], and
// has it checked by [Check].
//
// What is guaranteed:
//
//   - Of processes that migrate at once, one works at a time. On PostgreSQL that is
//     an advisory lock of the session, polled every 50 to 150 ms; on MySQL and
//     MariaDB a GET_LOCK; on SQLite the file's write lock, taken for each migration
//     anew. The lock ends with the session, so a process that dies holds up nobody.
//   - A statement that needs a lock on a table waits for readers a few seconds only
//     at a time ([DDLTimeout]), since everybody else queues behind it meanwhile. It is
//     tried again until [LockTimeout] has passed, the one bound of all waiting.
//   - A table of somebody else's is neither taken for one of sqllock's nor dropped
//     ([ErrForeign]): what is there is compared with what a step makes before the step.
//   - A migration is applied with its row in the table of versions, or not at all,
//     on PostgreSQL and SQLite. MySQL and MariaDB commit every DDL statement by
//     itself: what failed between two statements goes on from there in the next Up.
//   - A ctx that ends while Up waits ends it at once. Later it lets the migration
//     that runs come to its end, and stops Up before the next one: nothing is left
//     half done. To break off harder is to end the process, or the session.
//   - One connection of the pool is used at a time, so that a pool of one will do.
//     The pool is never closed, and settings of the session are put back.
//
// The lock needs a session: through a proxy that pools transactions (PgBouncer in
// transaction mode) Up fails, and says so, before it has changed anything.
//
// On a Galera cluster, or under group replication, a GET_LOCK is each node's own, so
// processes that migrate at once have to do it through the same node. Through
// different ones they are not kept apart, and one of them may fail.
//
// The rule for what a migration may change, so that the programs of the release
// before go on working beside it, stands in the documentation of internal/schema.
package migrations
