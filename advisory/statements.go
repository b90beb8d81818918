package advisory

import (
	"context"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// dialect is the SQL of one kind of database. Every statement that takes or gives also
// answers the session's id, so that a proxy that has run it elsewhere is noticed.
type dialect interface {
	// setUp makes a session ours: it reads what it is, marks it, and sets its settings.
	setUp(ctx context.Context, c *sqldb.Conn, lease time.Duration, mark string) (setup, error)
	// handBack confirms that the session holds nothing, and puts its settings back.
	handBack(ctx context.Context, c *sqldb.Conn, before []string) error
	// try takes a key if it is free. look: who holds it is of interest.
	try(ctx context.Context, c *sqldb.Conn, k Key, shared, look bool) (answer, error)
	// block waits for it, for at most d. An error of class LockTimeout is a refusal, too.
	block(ctx context.Context, c *sqldb.Conn, k Key, shared bool, d time.Duration) (answer, error)
	// unlock gives it back.
	unlock(ctx context.Context, c *sqldb.Conn, k Key, shared bool) (answer, error)
	// holds says whether the session has it.
	holds(ctx context.Context, c *sqldb.Conn, k Key) (bool, error)
	// waitedFor says whether any session waits for it.
	waitedFor(ctx context.Context, c *sqldb.Conn, k Key) (bool, error)
	// ping answers the session's id, and why its server is refused by now.
	ping(ctx context.Context, c *sqldb.Conn) (id int64, refuse string, err error)

	// lease is what the server can make of a TTL, or why it cannot.
	lease(ttl time.Duration) (time.Duration, error)
	// slice is how long one wait can be, of which left is left; 0: too short for the
	// server, so it is polled.
	slice(left time.Duration) time.Duration
}

// setup is what a session was found to be.
type setup struct {
	id     int64
	refuse string   // why its server is refused
	before []string // its settings, to be put back
}

// verdict is what a statement has answered.
type verdict int64

const (
	no   verdict = 0 // it is another's
	yes  verdict = 1 // done
	null verdict = 2 // GET_LOCK, RELEASE_LOCK: NULL
)

type answer struct {
	id      int64 // of the session
	verdict verdict
	holder  int64 // of the session that holds the key, where that is told; 0: unknown
}

func dialectOf(db *sqldb.DB) dialect {
	if db.Kind() == sqldb.Postgres {
		return postgres{transactionTimeout: db.VersionNumber() >= 170000}
	}
	return innodb{maria: db.Kind() == sqldb.MariaDB}
}
