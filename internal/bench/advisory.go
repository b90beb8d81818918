package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// What people write by hand for a lock that lives in a session, on a connection that
// they keep.
const (
	rawPostgres = "SELECT pg_advisory_lock($1);\nSELECT pg_advisory_unlock($1)"
	rawMySQL    = "SELECT GET_LOCK('bench', 10);\nSELECT RELEASE_LOCK('bench')"
)

// advisoryKinds are the servers that have such locks.
var advisoryKinds = []sqldb.Kind{sqldb.Postgres, sqldb.MySQL, sqldb.MariaDB}

func rawFloor(kind sqldb.Kind) string {
	if kind == sqldb.Postgres {
		return rawPostgres
	}
	return rawMySQL
}

// advisoryLocker makes a Locker that is closed with the bed.
func (b *bed) advisoryLocker(ctx context.Context, db *sqldb.DB, opts ...lock.Option) (*advisory.Locker, error) {
	l, err := advisory.New(ctx, db, opts...)
	if err != nil {
		return nil, err
	}
	b.closing = append(b.closing, l.Close)
	return l, nil
}

// rawSession is a connection out of the pool, as a program has it that does it by hand.
type rawSession struct {
	pgx  *pgxpool.Conn
	sql  *sql.Conn
	name string // of the lock, on MySQL and MariaDB
}

// rawKey is the lock's key on PostgreSQL.
const rawKey = 7310868735422190

func (b *bed) rawSession(ctx context.Context) (*rawSession, error) {
	s := &rawSession{name: "bench_" + b.name}
	var err error
	if b.kind == sqldb.Postgres {
		if s.pgx, err = b.pgx.Acquire(ctx); err == nil {
			b.closing = append(b.closing, func() error { s.pgx.Release(); return nil })
		}
		return s, err
	}
	if s.sql, err = b.sql.Conn(ctx); err == nil {
		b.closing = append(b.closing, s.sql.Close)
	}
	return s, err
}

func (s *rawSession) lock(ctx context.Context) error {
	if s.pgx != nil {
		_, err := s.pgx.Exec(ctx, "SELECT pg_advisory_lock($1)", rawKey)
		return err
	}
	return s.one(ctx, "SELECT GET_LOCK('"+s.name+"', 10)")
}

func (s *rawSession) unlock(ctx context.Context) error {
	if s.pgx == nil {
		return s.one(ctx, "SELECT RELEASE_LOCK('"+s.name+"')")
	}
	var ok bool
	err := s.pgx.QueryRow(ctx, "SELECT pg_advisory_unlock($1)", rawKey).Scan(&ok)
	if err == nil && !ok {
		err = errors.New("pg_advisory_unlock: false")
	}
	return err
}

func (s *rawSession) one(ctx context.Context, query string) error {
	var n sql.NullInt64
	err := s.sql.QueryRowContext(ctx, query).Scan(&n)
	if err == nil && n.Int64 != 1 {
		err = fmt.Errorf("%s: %v", query, n)
	}
	return err
}

// advisoryRatio is what a lock that nobody else wants costs over the two statements.
func advisoryRatio() figure {
	f := figure{
		name:  "advisory-ratio",
		unit:  "ratio",
		about: "Acquire and Release of an advisory lock over the two statements by hand on a pinned connection of the same pool, with the same ctx, which can be cancelled; nobody else wants it; 1 goroutine.",
		measure: func(ctx context.Context, b *bed) (measurement, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			l, err := b.advisoryLocker(ctx, b.db)
			if err != nil {
				return measurement{}, err
			}
			s, err := b.rawSession(ctx)
			if err != nil {
				return measurement{}, err
			}
			return b.timeRatio(ctx, pairOf(l), func(ctx context.Context) error {
				if err := s.lock(ctx); err != nil {
					return err
				}
				return s.unlock(ctx)
			})
		},
	}
	for _, kind := range advisoryKinds {
		f.on = append(f.on, target{kind, atMost(1.2), rawFloor(kind)})
	}
	return f
}

const (
	// handoverOps is how many hand-overs a round has, and handoverPause how long the
	// waiter has to come to wait in the server.
	handoverOps   = 40
	handoverPause = 4 * time.Millisecond
)

// advisoryHandover is how long a waiter in another process waits from the release on.
func advisoryHandover() figure {
	f := figure{
		name: "advisory-handover-ratio",
		unit: "ratio",
		about: "From the call of Release in one Locker to the return of Acquire in another, which has a pool of its own and waits in the server, " +
			"over the same with two sessions by hand: the medians of a round.",
		measure: func(ctx context.Context, b *bed) (m measurement, err error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			other, err := b.open(ctx, conns)
			if err != nil {
				return m, err
			}
			var lockers [2]*advisory.Locker
			var raw [2]*rawSession
			for i, db := range []*sqldb.DB{b.db, other.db} {
				if lockers[i], err = b.advisoryLocker(ctx, db); err != nil {
					return m, err
				}
				if raw[i], err = b.rawSession(ctx); err != nil {
					return m, err
				}
			}
			ours := handover(func(ctx context.Context) (operation, error) {
				l, err := lockers[0].Acquire(ctx, benchName)
				if err != nil {
					return nil, err
				}
				return l.Release, nil
			}, func(ctx context.Context) (operation, error) {
				l, err := lockers[1].Acquire(ctx, benchName)
				if err != nil {
					return nil, err
				}
				return l.Release, nil
			})
			hand := func(s *rawSession) func(ctx context.Context) (operation, error) {
				return func(ctx context.Context) (operation, error) { return s.unlock, s.lock(ctx) }
			}
			floor := handover(hand(raw[0]), hand(raw[1]))
			var all [2][]float64
			for i := range b.rounds + 1 { // the first one makes connections
				pairs, err := alternate(ctx, handoverOps, ours, floor)
				if err != nil {
					return m, err
				}
				if i == 0 {
					continue
				}
				o, fl := split(pairs)
				m.values = append(m.values, median(o)/median(fl))
				all[0], all[1] = append(all[0], o...), append(all[1], fl...)
			}
			m.note = fmt.Sprintf("%d of each per round; p50: ours %v, the floor %v", handoverOps, nanoseconds(median(all[0])), nanoseconds(median(all[1])))
			return m, nil
		},
	}
	for _, kind := range advisoryKinds {
		f.on = append(f.on, target{kind, atMost(1.3), rawFloor(kind)})
	}
	return f
}

// handover lets one acquire and then release while another waits. What acquires
// returns what releases.
func handover(one, two func(ctx context.Context) (operation, error)) side {
	return func(ctx context.Context) (float64, error) {
		release, err := one(ctx)
		if err != nil {
			return 0, err
		}
		type had struct {
			at      time.Time
			release operation
			err     error
		}
		next := make(chan had, 1)
		go func() {
			release, err := two(ctx)
			next <- had{time.Now(), release, err}
		}()
		if err := pause(ctx, handoverPause); err != nil {
			return 0, err
		}
		begun := time.Now()
		err = release(ctx)
		h := <-next
		if err = errors.Join(err, h.err); err != nil {
			return 0, err
		}
		return float64(h.at.Sub(begun)), h.release(ctx)
	}
}

// advisoryLocks is how many locks are held for advisoryConnections.
const advisoryLocks = 1000

// advisoryConnections is how many connections a program needs that holds many locks.
func advisoryConnections() figure {
	f := figure{
		name:  "advisory-connections",
		unit:  "connections",
		about: fmt.Sprintf("Connections out of the pool of a Locker that holds %d advisory locks, acquired by 8 goroutines; the largest number that was seen.", advisoryLocks),
		measure: func(ctx context.Context, b *bed) (m measurement, err error) {
			l, err := b.advisoryLocker(ctx, b.db)
			if err != nil {
				return m, err
			}
			out := func() int {
				if b.pgx != nil {
					return int(b.pgx.Stat().AcquiredConns())
				}
				return b.sql.Stats().InUse
			}
			most := 0
			done := make(chan error, 1)
			begun := time.Now()
			go func() { done <- acquireMany(ctx, l, advisoryLocks) }()
			for err, held := error(nil), false; !held; {
				select {
				case err = <-done:
					if held = true; err != nil {
						return m, err
					}
				case <-time.After(time.Millisecond):
				}
				most = max(most, out())
			}
			m.values = []float64{float64(most)}
			m.note = "the locks were had in " + time.Since(begun).Round(time.Millisecond).String() + "; " + strconv.Itoa(out()) + " connections in the end"
			return m, nil
		},
	}
	for _, kind := range advisoryKinds {
		f.on = append(f.on, target{kind: kind, bound: atMost(8)})
	}
	return f
}
