package advisory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sqlnative/locks/internal/waitq"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// Locker grants advisory locks of one database. It is safe for concurrent use; a
// program needs one for each database.
type Locker struct {
	db       *sqldb.DB
	sql      dialect
	names    namespace
	features lock.Features
	base     []lock.Option
	defaults lock.Options // what base comes to
	config   config
	limit    int // sessions at once
	queue    waitq.Queue

	life context.Context // ends with Close: waiters give up
	end  context.CancelCauseFunc

	mu       sync.Mutex
	closed   bool          // no new work
	busy     int           // pieces of work under way: Acquires, sessions
	calm     chan struct{} // closed when busy is 0, for Close
	held     map[*held]struct{}
	allGone  chan struct{} // closed when held is empty, for Shutdown
	sessions []*conn
	opening  int           // sessions that are being opened
	waiting  int           // sessions that somebody waits on
	moved    chan struct{} // closed when a session may have become free; nil: nobody waits for that
	watch    *time.Timer   // ends statements without an answer; nil: there is no session
	lines    map[string]line
}

var _ lock.Locker = (*Locker)(nil)

// New returns a Locker on the server of db. It asks the server whether its advisory
// locks can keep what package lock promises, and refuses it with the reason if not; on
// PostgreSQL it takes two connections of the pool for that, for a moment. A pool of one
// connection is refused: the Locker would take the only one. opts are the defaults of
// every Acquire, and [Connections] and [Unchecked]; a wrong one fails New.
//
// The Locker takes connections out of the pool, and gives them back: see the package's
// documentation. It closes nothing else that it was given.
func New(ctx context.Context, db *sqldb.DB, opts ...lock.Option) (*Locker, error) {
	if db == nil {
		return nil, fmt.Errorf("%w: advisory.New: the database is nil", lock.ErrInvalid)
	}
	if db.Kind() == sqldb.SQLite {
		return nil, errSQLite
	}
	l := &Locker{
		db: db, sql: dialectOf(db), names: namespaceOf(db), base: opts,
		held: map[*held]struct{}{}, lines: map[string]line{},
	}
	if db.Kind() == sqldb.Postgres {
		l.features = lock.FeatureShared
	}
	var err error
	if l.defaults, err = l.collect(opts); err != nil {
		return nil, err
	}
	l.config = configOf(l.defaults)
	l.limit = l.config.connections
	if n := db.Driver().MaxConns(); n > 0 {
		l.limit = min(l.limit, n-1)
	}
	if err := l.refuse(ctx); err != nil {
		return nil, err
	}
	l.life, l.end = context.WithCancelCause(context.Background())
	return l, nil
}

// collect makes Options of those of an Acquire.
func (l *Locker) collect(opts []lock.Option) (lock.Options, error) {
	if len(opts) == 0 && l.life != nil {
		return l.defaults, nil
	}
	base := l.base
	if l.life == nil { // New
		base = nil
	}
	o, err := lock.Collect(strategy, l.features, base, opts)
	if err != nil {
		return o, err
	}
	if l.life != nil && configOf(o) != l.config {
		return o, fmt.Errorf("%w: advisory: Connections and Unchecked are options of New", lock.ErrInvalid)
	}
	if _, err := l.sql.lease(o.TTL); err != nil {
		return o, err
	}
	return o, nil
}
