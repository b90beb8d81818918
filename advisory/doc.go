// Package advisory has locks that live in a session of the server: advisory locks on
// PostgreSQL, GET_LOCK on MySQL and MariaDB. There is no table and no migration, a
// lock costs one round trip that writes nothing, and the server itself hands it to
// whoever waits. SQLite has no such thing: use sqllock.New.
//
// # Sessions
//
// A [Locker] takes connections out of the pool for as long as they hold locks, so that
// neither a bounded lifetime nor an idle limit of the pool takes a lock away. Many
// locks share few of them: one that can be had at once is tried on a session that
// holds others already, never on one that holds its key in any mode, for a session is
// granted what it has, a second time. One that has to be waited for is waited for on a
// session of its own, for a wait in the server stops everything else there. A session
// without locks goes back to the pool after a second, if the server confirms that it
// holds nothing and its settings are put back; else it is closed. A DBA finds them by
// application_name on PostgreSQL ("sqllock advisory: HOST, pid 42"), and on MySQL and
// MariaDB by the user variable @sqllock_advisory (performance_schema.user_variables_by_thread)
// and by the comment in front of their statements.
//
// # The dead-man's switch
//
// A client that is cut off, or stopped, says nothing to the server, which would keep
// its session, and its locks, for hours. So the server is told to end a session that
// says nothing for a TTL (idle_session_timeout; wait_timeout, which counts whole
// seconds, so that a TTL is cut to them there and cannot be below one), and every
// session is pinged when a third of it has passed. The holder, on its side, trusts its locks
// until
//
//	last ping sent + TTL - max(TTL/10, 50 ms)
//
// by its own monotonic clock: [lock.Lock.Context] ends then, or as soon as the loss is
// known, whether the server answers or not. A wait in the server is cut into slices of at most
// 10 s: a waiter that dies, and is granted the lock while dead, keeps it from others
// for no longer than its slice and the TTL.
//
// # What it does not promise
//
// A server that restarts has forgotten all locks, a session that somebody kills
// (pg_terminate_backend, KILL) has lost its own, and the holder finds that out with its
// next ping: until then, for at most a third of the TTL, another can hold the lock too.
// The same goes for a failover to another server, if the one before is gone, or was made
// read-only (MySQL, MariaDB), which a ping finds out as well. There is no fencing token
// ([lock.Lock.Token] is 0) and no [lock.Lock.Guard]: whoever needs those, or the lock to
// outlive the server, has the lock table, package sqllock.
//
// Sessions wait for each other without the server seeing that they are one program's:
// two programs that wait for each other's locks wait until [lock.Wait] or ctx ends it.
//
// What a server cannot promise is refused, with the reason: a hot standby and a
// read-only server, a node of a Galera cluster or of group replication, whose GET_LOCK
// is its own, a proxy that pools transactions, where that can be told, a pool of one
// connection. [Unchecked] takes such a server all the same.
package advisory
