package sqldb

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Change is one statement that changes something, run in autocommit by
// [DB.Change].
type Change struct {
	// Op says in errors what it is: "take 1 of t_bonus 10001".
	Op string
	// Query is the statement; Args are its arguments.
	Query string
	Args  []any
	// Returning says that it answers rows.
	Returning bool
	// MaxRows, if not 0, is how many rows it may change. On SQLite, where it runs
	// between BEGIN and COMMIT, changing more is [ErrTooManyRows], and rolled back. A
	// server commits by itself: there the statement has to see to it.
	MaxRows int64
	// Grace is how long the statement's own answer is waited for once ctx has ended and
	// the server was asked to end the statement. 0: [Bound]. On SQLite, where no
	// statement waits once it has begun, it means nothing.
	Grace time.Duration
	// Settle, if not nil, asks the database what became of a statement whose verdict
	// did not come: by the identity that it would have written. It returns what the
	// statement would have answered, or ok=false if it was not applied. ctx is
	// detached and bounded by [Bound].
	Settle func(ctx context.Context, db *DB) (c *Changed, ok bool, err error)
}

// ErrTooManyRows: the statement would have changed more rows than [Change.MaxRows],
// and was rolled back.
var ErrTooManyRows = errors.New("sqldb: too many rows")

// Changed is what a changing statement has answered.
type Changed struct {
	Result
	// Sent is when it began to be sent: once a connection was had, and on SQLite the
	// write lock.
	Sent time.Time
	kind Kind
	rows [][]any
}

// NewChanged makes the answer that a [Change.Settle] found out.
func NewChanged(kind Kind, res Result, rows ...[]any) *Changed {
	return &Changed{Result: res, kind: kind, rows: rows}
}

// Len is the number of rows that came back.
func (c *Changed) Len() int { return len(c.rows) }

// Scan copies row i, as [Rows.Scan] does.
func (c *Changed) Scan(i int, dest ...any) error {
	if i < 0 || i >= len(c.rows) {
		return fmt.Errorf("sqldb: row %d of %d", i, len(c.rows))
	}
	return scanValues(c.kind, c.rows[i], dest)
}

// firstInterrupt and maxInterrupt are the pauses between two interrupts.
const (
	firstInterrupt = 5 * time.Millisecond
	maxInterrupt   = 250 * time.Millisecond
)

// sendTries is how often a statement is sent that has surely not reached the
// server before.
const sendTries = 3

// Change runs one changing statement outside of any transaction of the caller's,
// in autocommit, and tells the truth about it whatever becomes of ctx:
//
//   - nil: it was applied, also if ctx has ended meanwhile;
//   - an [*UncertainError]: no verdict came, and no Settle could tell;
//   - any other error: nothing was changed, and nothing will be.
//
// So ctx never reaches the driver, which would drop the connection and leave a
// statement behind that the server applies later. When ctx ends while the
// statement waits, the server is asked to end it (a cancel request on PostgreSQL,
// KILL QUERY from a second connection on MySQL and MariaDB), and its answer is
// what counts. If none comes within [Change.Grace] of ctx's end, the connection is
// closed and the outcome is unknown. Where the driver gives no way to end a
// statement (a foreign PostgreSQL driver whose user can't see pg_stat_activity),
// the caller waits for its answer for as long.
//
// On SQLite, where no statement waits but for the one write lock, that lock is
// taken first (BEGIN IMMEDIATE): a ctx that ends before it was had returns at
// once, and the statement is never run. (With a driver whose BEGIN does not look at
// its ctx while it waits, another goroutine is left to it.) A lock that is not had in the
// connection's busy_timeout, or in [Bound] if that is shorter, is a [LockTimeout].
func (db *DB) Change(ctx context.Context, c Change) (*Changed, error) {
	if err := ctx.Err(); err != nil {
		return nil, notChanged(c.Op, err)
	}
	args, err := db.args(c.Args)
	if err != nil {
		return nil, err
	}
	c.Args = args
	run := db.changeServer
	if db.kind == SQLite {
		run = db.changeSQLite
	}
	for try := 1; ; try++ {
		conn, err := db.drv.Conn(ctx)
		if err != nil {
			if ctxErr := ctx.Err(); ctxErr != nil && !errors.Is(err, ctxErr) {
				err = fmt.Errorf("%w: %w", ctxErr, err) // ncruces: "interrupted"
			}
			return nil, undone{fmt.Errorf("sqldb: %s: no connection could be had from the pool, nothing was changed: %w", c.Op, err)}
		}
		changed, err := run(ctx, conn, c)
		switch {
		case err == nil || Uncertain(err) || !neverSent(err):
			return changed, err
		case ctx.Err() != nil: // go-sql-driver: it ended while the connection was made
			return nil, notChanged(c.Op, ctx.Err())
		case try == sendTries:
			return nil, err
		} // else: a connection that had died in the pool
	}
}

// notChanged says that ctx ended and nothing was changed.
func notChanged(op string, err error) error {
	return fmt.Errorf("sqldb: %s: nothing was changed: %w", op, err)
}

// verdict makes of a statement's error what Change returns.
func (db *DB) verdict(ctx context.Context, c Change, sent time.Time, err error, interrupted bool) (*Changed, error) {
	switch {
	case interrupted && ClassOf(err) == Canceled:
		return nil, notChanged(c.Op, ctx.Err())
	case certain(err):
		return nil, fmt.Errorf("sqldb: %s: %w", c.Op, err)
	case c.Settle == nil:
		return nil, &UncertainError{Op: c.Op, Err: err}
	}
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Bound)
	defer cancel()
	changed, ok, serr := c.Settle(sctx, db)
	switch {
	case serr != nil:
		return nil, &UncertainError{Op: c.Op, Err: errors.Join(err, serr)}
	case !ok:
		return nil, undone{fmt.Errorf("sqldb: %s: nothing was changed: %w", c.Op, err)}
	}
	changed.Sent = sent
	return changed, nil
}

// changeServer runs c on a server, where a statement can wait for row locks and
// can be ended from outside.
func (db *DB) changeServer(ctx context.Context, conn DriverConn, c Change) (*Changed, error) {
	if ctx.Done() == nil { // nothing can end it: the fast path of a background job
		changed, err := db.runOn(ctx, conn, c)
		_ = conn.Close(err != nil && !certain(err))
		if err != nil {
			return db.verdict(ctx, c, changed.Sent, err, false)
		}
		return changed, nil
	}
	return db.changeAttended(ctx, conn, c)
}

// changeAttended runs c detached; when ctx ends, it has the server end the
// statement, and reports what the statement's own answer says.
func (db *DB) changeAttended(ctx context.Context, conn DriverConn, c Change) (*Changed, error) {
	detached, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	interrupts := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupts)
		// The interrupts and the wait for their effect share one bound. One may reach
		// the server before the statement does, and be forgotten: so it is repeated.
		grace := c.Grace
		if grace == 0 {
			grace = Bound
		}
		ictx, cancel := context.WithTimeout(detached, grace)
		defer cancel()
		for pause := firstInterrupt; ; pause = min(2*pause, maxInterrupt) {
			_ = conn.Interrupt(ictx) // if it fails, the answer or the bound decides
			if sleep(ictx, pause) != nil {
				break
			}
		}
		abandon() // no answer in time: the driver closes the connection
	})
	changed, err := db.runOn(detached, conn, c)
	interrupted := !stop()
	abandon()
	if interrupted {
		// The interrupt may still be on its way to this connection's session: wait
		// until it was delivered, and never let another statement meet it.
		<-interrupts
	}
	_ = conn.Close(interrupted || err != nil && !certain(err))
	switch {
	case err != nil:
		return db.verdict(ctx, c, changed.Sent, err, interrupted)
	case interrupted && changed.RowsAffected == 0:
		// MariaDB answers OK with no rows to an UPDATE that was killed at the right
		// moment, though the row is there. No row is no change, whoever says it, but it
		// must not be taken for the statement's own refusal.
		return nil, notChanged(c.Op, ctx.Err())
	}
	return changed, nil
}

// runOn runs the statement and reads its whole answer. It says when it was sent
// also if it fails.
func (db *DB) runOn(ctx context.Context, q Querier, c Change) (*Changed, error) {
	changed := &Changed{kind: db.kind, Sent: time.Now()}
	if !c.Returning {
		res, err := q.Exec(ctx, c.Query, c.Args)
		changed.Result = res
		return changed, err
	}
	rows, err := q.Query(ctx, c.Query, c.Args)
	if err != nil {
		return changed, err
	}
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			_ = rows.Close()
			return changed, err
		}
		for i, v := range values {
			if b, ok := v.([]byte); ok {
				values[i] = append([]byte(nil), b...) // the driver's buffer ends with the row
			}
		}
		changed.rows = append(changed.rows, values)
	}
	// The end of the rows is where the statement's verdict comes.
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return changed, single(err)
	}
	changed.RowsAffected = int64(len(changed.rows))
	return changed, nil
}

// The two ways out of changeSQLite's wait for the write lock; whichever is taken
// first is the truth for both sides.
const (
	waiting int32 = iota
	running
	abandoned
)

// changeSQLite runs c on SQLite. The interleaving that the state closes: ctx ends,
// the caller is told that nothing was changed, and only then the lock is had and
// the statement runs. With it, either the caller left first, and the lock is
// given back unused, or the statement began first, and the caller waits for it,
// which is a matter of one commit.
func (db *DB) changeSQLite(ctx context.Context, conn DriverConn, c Change) (*Changed, error) {
	var state atomic.Int32
	type answer struct {
		c   *Changed
		err error
	}
	detached := context.WithoutCancel(ctx)
	work := func(begin context.Context) (changed *Changed, err error) {
		tx, err := db.beginImmediate(begin, conn, func() bool { return begin.Err() != nil || state.Load() == abandoned })
		if err != nil {
			// A BEGIN that ctx ended may have been carried out all the same, and was then
			// rolled back by Begin, which discards what it is not sure of: no more may be
			// discarded, for a database in memory ends with its connection.
			_ = conn.Close(false)
			if begin.Err() != nil {
				return nil, notChanged(c.Op, begin.Err())
			}
			return nil, undone{fmt.Errorf("sqldb: %s: nothing was changed: %w", c.Op, err)}
		}
		broken := false
		defer func() { _ = conn.Close(broken) }()
		if !state.CompareAndSwap(waiting, running) {
			broken = tx.Rollback(detached) != nil
			return nil, notChanged(c.Op, ctx.Err())
		}
		changed, err = db.runOn(detached, tx, c)
		if err != nil {
			broken = tx.Rollback(detached) != nil
			return nil, undone{fmt.Errorf("sqldb: %s: %w", c.Op, err)}
		}
		if c.MaxRows > 0 && changed.RowsAffected > c.MaxRows {
			broken = tx.Rollback(detached) != nil
			return nil, undone{fmt.Errorf("%w: %s: %d, at most %d; nothing was changed", ErrTooManyRows, c.Op, changed.RowsAffected, c.MaxRows)}
		}
		if err := db.commitBusy(detached, tx); err != nil {
			broken = tx.Rollback(detached) != nil
			return db.verdict(ctx, c, changed.Sent, err, false)
		}
		return changed, nil
	}
	if p, ok := conn.(interface{ PromptBegin() bool }); ctx.Done() == nil || ok && p.PromptBegin() {
		return work(ctx) // BEGIN itself gives up when ctx ends: no other goroutine is needed to leave it
	}
	done := make(chan answer, 1)
	go func() {
		changed, err := work(detached)
		done <- answer{changed, err}
	}()
	select {
	case a := <-done:
		return a.c, a.err
	case <-ctx.Done():
		if state.CompareAndSwap(waiting, abandoned) {
			return nil, notChanged(c.Op, ctx.Err())
		}
		a := <-done
		return a.c, a.err
	}
}

// busyBase is the base of the pauses while SQLite is busy: a commit of another
// connection is a matter of milliseconds.
const busyBase = 2 * time.Millisecond

// beginImmediate takes SQLite's write lock. A busy database is tried again until
// [Bound] has passed: a connection may have no busy_timeout at all.
func (db *DB) beginImmediate(ctx context.Context, conn DriverConn, left func() bool) (DriverTx, error) {
	p, _ := Policy{Base: busyBase}.withDefaults()
	begun := time.Now()
	for n := 1; ; n++ {
		tx, err := conn.Begin(ctx, TxOptions{})
		if err == nil || ClassOf(err) != LockTimeout || time.Since(begun) > Bound || left() {
			return tx, err
		}
		_ = sleep(ctx, p.pause(min(n, 6)))
	}
}

// commitBusy commits; on SQLite, with a rollback journal, readers can keep COMMIT
// from the file, and the transaction stays open for another try. Elsewhere a
// COMMIT is the end, whatever it answers.
func (db *DB) commitBusy(ctx context.Context, tx DriverTx) error {
	p, _ := Policy{Base: busyBase}.withDefaults()
	begun := time.Now()
	for n := 1; ; n++ {
		err := tx.Commit(ctx)
		if err == nil || db.kind != SQLite || ClassOf(err) != LockTimeout || time.Since(begun) > Bound {
			return err
		}
		_ = sleep(ctx, p.pause(min(n, 6)))
	}
}
