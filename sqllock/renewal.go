package sqllock

import (
	"context"
	"errors"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// errPinned: a renewal or an extension has skipped the row.
var errPinned = errors.New("a transaction pins the row, most likely a guard that has not ended; its lease stays as it is")

// outcome is what became of one renewal of a batch.
type outcome struct {
	renewal
	sent time.Time // the lease can be trusted from here on for its TTL; zero: not renewed
	lost bool
	err  error
}

// renew renews a batch by one statement.
func (g *run) renew(f *flight) {
	ctx, cancel := context.WithDeadline(g.ctx, f.limit)
	defer cancel()
	begun := time.Now()
	var outcomes []outcome
	err := sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) (err error) {
		outcomes, err = g.ask(ctx, f.batch)
		return err
	})
	if err != nil {
		if !sqldb.Retryable(err) {
			g.putConn(true)
		}
		outcomes = outcomes[:0]
		for _, m := range f.batch {
			outcomes = append(outcomes, outcome{renewal: m, err: err})
		}
	}
	untils := g.r.land(f, outcomes)
	for i, o := range outcomes {
		e := lock.Event{Name: o.name, Token: o.token, Took: time.Since(begun), Err: o.err}
		switch until, still := untils[o.held]; {
		case !still: // released or lost meanwhile
			outcomes[i].err = lock.ErrReleased
		case o.lost:
			o.ctrl.Lose("the row is another's: its lease had run out, or somebody has taken it away", nil)
		case o.err != nil:
			o.trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.RenewFailed }, e)
		case o.ctrl.Renewed(until):
			o.trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.Renewed }, e)
		}
		o.tell(untils[o.held], outcomes[i].err)
	}
}

// land notes the outcomes, and returns until when the leases of those locks that
// are still held can be trusted.
func (r *renewer) land(f *flight, outcomes []outcome) map[*held]time.Time {
	untils := make(map[*held]time.Time, len(outcomes))
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, o := range outcomes {
		h := o.held
		if _, still := r.locks[h]; !still {
			continue
		}
		switch {
		case o.lost:
		case o.err == nil:
			h.sent, h.ttl, h.retry, h.skips = o.sent, o.renewal.ttl, time.Time{}, 0
		case errors.Is(o.err, errPinned):
			h.skips++
			h.retry = now.Add(min(5*time.Millisecond<<min(h.skips, 8), h.pause()))
			h.want = h.ttl
		default:
			h.retry = now.Add(h.pause())
			h.unsure(o.renewal.ttl)
			h.want = h.ttl
		}
		untils[h] = h.trusted()
	}
	r.flight = nil
	close(f.landed)
	return untils
}

// runner is where a renewal runs: the goroutine's connection, or the pool if it
// has but one.
type runner interface {
	Exec(ctx context.Context, query string, args ...any) (sqldb.Result, error)
	Query(ctx context.Context, query string, args ...any) (*sqldb.Rows, error)
}

// runner takes another connection if the last one has died.
func (g *run) runner(ctx context.Context) (runner, error) {
	if g.r.l.db.Driver().MaxConns() == 1 {
		return g.r.l.db, nil
	}
	if g.conn == nil {
		c, err := g.r.l.db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		g.conn = c
	}
	return g.conn, nil
}

// key is what a row of an answer is known by.
type key struct {
	name  string
	token int64
}

// ask sends the renewal, and finds out what became of each.
func (g *run) ask(ctx context.Context, batch []renewal) ([]outcome, error) {
	on, err := g.runner(ctx)
	if err != nil {
		return nil, err
	}
	sql := g.r.l.sql
	sent := time.Now()
	renewed := map[key]bool{}
	query, args := sql.renew(batch)
	n := 0
	if sql.returning {
		err = answers(ctx, on, query, args, 2, func(k key, _ int64) { renewed[k] = true })
		n = len(renewed)
	} else {
		var res sqldb.Result
		res, err = on.Exec(ctx, query, args...)
		n = int(res.RowsAffected)
	}
	if err != nil {
		return nil, err
	}
	all := n == len(batch)
	left := map[key]time.Duration{}
	asked := time.Now()
	if !all { // some were not
		query, args = sql.renewed(batch)
		if err := answers(ctx, on, query, args, 3, func(k key, us int64) { left[k] = time.Duration(us) * time.Microsecond }); err != nil {
			return nil, err
		}
	}
	outcomes := make([]outcome, 0, len(batch))
	for _, m := range batch {
		k := key{m.name, m.token}
		l, ours := left[k]
		o := outcome{renewal: m, sent: sent}
		switch {
		case all || renewed[k]:
		case !ours:
			o.sent, o.lost, o.err = time.Time{}, true, lock.ErrLost
		case sql.returning || l < m.lease(sent)-time.Since(sent):
			o.sent, o.err = time.Time{}, errPinned
		default:
			// MySQL and MariaDB only count. It has about what a renewal gives. What can be
			// trusted is what was read, from when it was asked for on: a row that was skipped,
			// beside an answer that took very long, may look as if it had been renewed.
			if at := asked.Add(l - m.ttl); at.Before(sent) {
				o.sent = at
			}
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}

// lease is how long a lease this renewal gives.
func (m renewal) lease(now time.Time) time.Duration {
	if m.atMost > 0 {
		return min(m.ttl, m.first.Add(m.atMost).Sub(now))
	}
	return m.ttl
}

// answers reads name, token and, if there are three columns, a number.
func answers(ctx context.Context, on runner, query string, args []any, columns int, f func(key, int64)) error {
	rows, err := on.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var k key
		var n int64
		dest := []any{&k.name, &k.token, &n}
		if err := rows.Scan(dest[:columns]...); err != nil {
			return err
		}
		f(k, n)
	}
	return rows.Err()
}
