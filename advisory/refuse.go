package advisory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

var errUnsupported = errors.ErrUnsupported

// refused is the error about a server whose locks would not keep what they promise.
func refused(reason string) error {
	return fmt.Errorf("lock: advisory: this server is refused: %s; advisory.Unchecked takes it all the same: %w", reason, errUnsupported)
}

// refuse says why advisory locks would not keep what they promise. What can change
// while the program runs, such as which server is the primary, is looked at again with
// every session, and on MySQL and MariaDB, where that ends no session, with every ping.
func (l *Locker) refuse(ctx context.Context) error {
	if l.limit < 1 {
		return fmt.Errorf("lock: advisory: the pool has one connection, which a lock would keep for itself: give it two or more, or use the lock table (sqllock.New): %w", errUnsupported)
	}
	if l.config.unchecked {
		return nil
	}
	if l.db.Kind() == sqldb.Postgres {
		return l.refusePooler(ctx)
	}
	return l.refuseReplicated(ctx)
}

// poolerLooks is how often two connections are compared.
const poolerLooks = 3

// refusePooler finds a proxy that pools transactions, such as PgBouncer: there a
// statement runs on whatever session of the server is free, and two connections that
// are open at the same time meet the same one. Sessions of the server's own never do.
// With many clients at once it may go unnoticed here: then every statement of a Locker
// compares the session's id with the one before.
func (l *Locker) refusePooler(ctx context.Context) (err error) {
	var conns [2]*sqldb.Conn
	defer func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	for i := range conns {
		if conns[i], err = l.db.Conn(ctx); err != nil {
			return fmt.Errorf("lock: advisory: looking for a proxy takes two connections: %w", err)
		}
	}
	seen := [2]map[int64]bool{{}, {}}
	for range poolerLooks {
		for i, c := range conns {
			id, _, err := l.sql.ping(ctx, c)
			if err != nil {
				return fmt.Errorf("lock: advisory: asking the server for the session's id: %w", err)
			}
			seen[i][id] = true
			if seen[1-i][id] {
				return refused("two connections share a session of it, as behind a proxy that pools transactions (PgBouncer with pool_mode=transaction), where a lock stays behind in a session that is not ours: connect to the server itself, or with pool_mode=session")
			}
		}
	}
	return nil
}

// refuseReplicated refuses a node of Galera or of group replication.
func (l *Locker) refuseReplicated(ctx context.Context) error {
	rows, err := l.db.Query(ctx, replicationMySQL)
	if err != nil {
		return fmt.Errorf("lock: advisory: asking the server whether it is replicated: %w", err)
	}
	defer func() { _ = rows.Close() }()
	return replicated(rows)
}

// replicationMySQL asks for what tells Galera and group replication from other servers.
const replicationMySQL = "SHOW VARIABLES WHERE Variable_name IN ('wsrep_on', 'group_replication_group_name')"

// replicated says why the server that answered it is refused.
func replicated(rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
},
) error {
	reason := ""
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		switch {
		case name == "wsrep_on" && value == "ON":
			reason = "it is a node of a Galera cluster (wsrep_on), and GET_LOCK is each node's own: use the lock table (sqllock.New)"
		case name == "group_replication_group_name" && value != "":
			reason = "it is a member of group replication, and GET_LOCK is each member's own: use the lock table (sqllock.New)"
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if reason != "" {
		return refused(reason)
	}
	return nil
}

// errPooled: a statement ran in another session than those before.
func errPooled(was, is int64) error {
	return refused(fmt.Sprintf("a connection that is our own was in session %d, and then in session %d: a proxy that pools transactions is in between", was, is))
}

// openBound is how long a new session may take to be set up.
const openBound = sqldb.Bound + time.Second
