package sqllock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"unicode/utf8"

	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/internal/waitq"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

const features = lock.FeatureNoRenew | lock.FeatureAtMost | lock.FeatureHoldAtLeast

// Locker is the lock table of one database. It is safe for concurrent use; a
// program needs one for each database.
type Locker struct {
	db      *sqldb.DB
	sql     statements
	base    []lock.Option
	trace   *lock.Trace
	noLabel string // what describes this process
	queue   waitq.Queue
	renew   renewer
	// announce shows those who wait to other processes.
	announce announcer

	mu      sync.Mutex
	closed  bool                                  // no new work
	busy    int                                   // pieces of work under way: Acquires, releases, the renewer, the announcer
	calm    chan struct{}                         // closed when busy is 0, for Close
	ends    map[*context.CancelCauseFunc]struct{} // what ends the Acquires under way
	held    map[*held]struct{}
	allGone chan struct{}   // closed when held is empty, for Shutdown
	seen    map[string]seen // what the head of a queue has seen last
}

var _ lock.Locker = (*Locker)(nil)

// New returns a Locker on the tables of db. It asks the database once whether they
// are there and of a version that this program knows; if not, the error is
// [lock.ErrNotMigrated] and says what to run. opts are the defaults of every
// Acquire; a wrong one fails New.
//
// The Locker takes one connection of the pool for itself while it holds locks, for
// renewals; of a pool that has only one it takes none. It closes nothing that it was
// given.
func New(ctx context.Context, db *sqldb.DB, opts ...lock.Option) (*Locker, error) {
	if db == nil {
		return nil, fmt.Errorf("%w: sqllock.New: the database is nil", lock.ErrInvalid)
	}
	o, err := lock.Collect("sqllock", features, nil, opts)
	if err != nil {
		return nil, err
	}
	if err := schema.Ready(ctx, db); err != nil {
		if errors.Is(err, schema.ErrNotMigrated) {
			return nil, fmt.Errorf("%w: %w", lock.ErrNotMigrated, err)
		}
		return nil, fmt.Errorf("sqllock: %w", err)
	}
	replicated, err := replicated(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("sqllock: asking the server whether it is replicated: %w", err)
	}
	l := &Locker{db: db, sql: statementsFor(db, replicated), base: opts, trace: o.Trace, noLabel: me(""), held: map[*held]struct{}{}, ends: map[*context.CancelCauseFunc]struct{}{}, seen: map[string]seen{}}
	l.announce = announcer{l: l, after: showAfter, ttl: showFor, bound: announceBound, wake: make(chan struct{}, 1), shown: map[*waiter]struct{}{}}
	l.renew.l, l.renew.locks, l.renew.starting = l, map[*held]struct{}{}, make(chan struct{}, 1)
	return l, nil
}

// replicated reports whether writes are certified on other nodes: Galera, group
// replication.
func replicated(ctx context.Context, db *sqldb.DB) (bool, error) {
	if !db.Kind().InnoDB() {
		return false, nil
	}
	rows, err := db.Query(ctx, "SHOW VARIABLES WHERE Variable_name IN ('wsrep_on', 'group_replication_group_name')")
	if err != nil {
		return false, err
	}
	defer func() { _ = rows.Close() }()
	on := false
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return false, err
		}
		on = on || name == "wsrep_on" && value == "ON" || name != "wsrep_on" && value != ""
	}
	return on, rows.Err()
}

// me describes this process to people.
func (l *Locker) me(label string) string {
	if label == "" {
		return l.noLabel
	}
	return me(label)
}

// me describes this process. Control characters take six characters each in JSON:
// what would be too long for the column loses the end of its label.
func me(label string) string {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	for h := (lock.Holder{Host: host, PID: os.Getpid(), Label: label}); ; {
		b, err := json.Marshal(h)
		if err != nil {
			panic("sqllock: " + err.Error()) // strings and an integer
		}
		switch {
		case len(b) <= schema.MaxHolder:
			return string(b)
		case h.Label == "":
			h.Host = ""
			continue
		}
		_, last := utf8.DecodeLastRuneInString(h.Label)
		h.Label = h.Label[:len(h.Label)-last]
	}
}

// text is a name or an owner as the column wants it: bytes where it is VARBINARY.
func (l *Locker) text(s string) any {
	if l.db.Kind().InnoDB() {
		return []byte(s)
	}
	return s
}

// keep notes a lock that was granted, and has it renewed. If the Locker was closed
// meanwhile, the lock is given back.
func (l *Locker) keep(h *held) error {
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.held[h] = struct{}{}
	}
	l.mu.Unlock()
	if closed {
		_ = h.handle.Release(context.Background())
		return fmt.Errorf("lock: %q: %w", h.name, lock.ErrClosed)
	}
	if !h.noRenew {
		l.renew.add(h)
	}
	if h.handle.Err() != nil {
		h.Lost() // it ended before it was noted
	}
	return nil
}

// remove forgets a lock that has ended.
func (l *Locker) remove(h *held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, h)
	if len(l.held) == 0 && l.allGone != nil {
		close(l.allGone)
		l.allGone = nil
	}
}
