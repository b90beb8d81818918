package sqldb_test

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"testing"

	"github.com/sqlnative/locks/sqldb"
)

// fault is what a call of the fake driver answers instead of what it should.
type fault struct {
	err error
	// applied: the server has done it all the same, only its answer was lost.
	applied bool
}

// fake is a database that counts the changes that were applied, and a driver that
// behaves as the real ones do: every transaction ends at its COMMIT, whatever that
// answers (SQLite's excepted), and a *sql.Tx whose transaction MySQL has ended runs
// what comes next in autocommit.
type fake struct {
	t    *testing.T
	kind sqldb.Kind
	rows [][]any // the answer to every query
	// during, if not nil, is called in the middle of every call.
	during func(call string)

	mu      sync.Mutex
	faults  map[string]fault // by call; each comes once
	calls   []string
	args    [][]any
	applied int
	conns   []*fakeConn
	txs     []*fakeTx
}

func newFake(t *testing.T, kind sqldb.Kind) (*fake, *sqldb.DB) {
	t.Helper()
	f := &fake{t: t, kind: kind, faults: map[string]fault{}}
	db, err := sqldb.New(f, sqldb.Server{Kind: kind, Version: "1", Number: 1, Schema: "main"})
	if err != nil {
		t.Fatal(err)
	}
	return f, db
}

// call notes a call and says what its fault is, if it has one.
func (f *fake) call(name string) fault {
	if f.during != nil {
		f.during(name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, name)
	x := f.faults[name]
	delete(f.faults, name)
	return x
}

// count is how often one of the named calls was made.
func (f *fake) count(names ...string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if slices.Contains(names, c) {
			n++
		}
	}
	return n
}

func (f *fake) change(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applied += n
}

func (f *fake) Conn(context.Context) (sqldb.DriverConn, error) {
	if x := f.call("conn"); x.err != nil {
		return nil, x.err
	}
	c := &fakeConn{fakeQuerier: fakeQuerier{f: f}}
	f.conns = append(f.conns, c)
	return c, nil
}

func (f *fake) Begin(context.Context, sqldb.TxOptions) (sqldb.DriverTx, error) {
	if x := f.call("begin"); x.err != nil {
		return nil, x.err
	}
	tx := &fakeTx{}
	tx.fakeQuerier = fakeQuerier{f, tx}
	f.txs = append(f.txs, tx)
	return tx, nil
}

func (f *fake) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	return fakeQuerier{f: f}.Exec(ctx, query, args)
}

func (f *fake) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	return fakeQuerier{f: f}.Query(ctx, query, args)
}

// Tx is what a caller has begun.
func (f *fake) Tx(any) (sqldb.DriverTx, error) { return f.Begin(f.t.Context(), sqldb.TxOptions{}) }

func (f *fake) MaxConns() int          { return 0 }
func (f *fake) SQL() (*sql.DB, func()) { return nil, func() {} }

// fakeQuerier runs statements, each of which is one change, in tx or in
// autocommit.
type fakeQuerier struct {
	f  *fake
	tx *fakeTx
}

func (q fakeQuerier) run() {
	if q.tx != nil && !q.tx.serverEnded {
		q.tx.pending++
		return
	}
	q.f.change(1)
}

// failed is what an error of the server does to the transaction.
func (q fakeQuerier) failed(err error) {
	if q.tx == nil {
		return
	}
	switch {
	case q.f.kind == sqldb.Postgres:
		q.tx.aborted = true
	case ends(q.f.kind, err):
		q.tx.pending, q.tx.serverEnded = 0, true
	}
}

func (q fakeQuerier) Exec(_ context.Context, _ string, args []any) (sqldb.Result, error) {
	q.f.args = append(q.f.args, args)
	if q.tx != nil && q.tx.done {
		return sqldb.Result{}, sql.ErrTxDone
	}
	x := q.f.call("exec")
	if x.err == nil || x.applied {
		q.run()
	}
	if x.err != nil {
		q.failed(x.err)
		return sqldb.Result{}, x.err
	}
	return sqldb.Result{RowsAffected: 1}, nil
}

func (q fakeQuerier) Query(_ context.Context, _ string, args []any) (sqldb.DriverRows, error) {
	q.f.args = append(q.f.args, args)
	if q.tx != nil && q.tx.done {
		return nil, sql.ErrTxDone
	}
	x := q.f.call("query")
	if x.err != nil {
		if x.applied {
			q.run()
		}
		q.failed(x.err)
		return nil, x.err
	}
	return &fakeRows{q: q, left: slices.Clone(q.f.rows)}, nil
}

// fakeRows answer the rows, and then the verdict of the statement.
type fakeRows struct {
	q      fakeQuerier
	left   [][]any
	row    []any
	ran    bool
	err    error
	closed bool
}

func (r *fakeRows) Next() bool {
	if len(r.left) == 0 || r.closed {
		r.end("err")
		return false
	}
	r.row, r.left = r.left[0], r.left[1:]
	return true
}

// end is where the statement's verdict comes, once.
func (r *fakeRows) end(call string) {
	if r.ran {
		return
	}
	r.ran = true
	x := r.q.f.call(call)
	if x.err == nil || x.applied {
		r.q.run()
	}
	if r.err = x.err; x.err != nil {
		r.q.failed(x.err)
	}
}

func (r *fakeRows) Values() ([]any, error) {
	if x := r.q.f.call("values"); x.err != nil {
		return nil, x.err
	}
	return r.row, nil
}

func (r *fakeRows) Err() error { return r.err }

func (r *fakeRows) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	if r.ran {
		return nil
	}
	r.end("close")
	err := r.err
	r.err = nil
	return err
}

// fakeConn is one connection.
type fakeConn struct {
	fakeQuerier
	closes    int
	discarded bool
}

func (c *fakeConn) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	return c.f.Begin(ctx, o)
}
func (c *fakeConn) Interrupt(context.Context) error { return c.f.call("interrupt").err }

func (c *fakeConn) Close(discard bool) error {
	c.closes++
	c.discarded = c.discarded || discard
	return nil
}

// fakeTx is one transaction.
type fakeTx struct {
	fakeQuerier
	pending              int
	serverEnded, aborted bool
	done                 bool
	rollbacks            int
}

// aborted is what pgx answers to COMMIT after an error, marked by the adapter.
var errAborted = marked{sqliteError(0, "commit unexpectedly resulted in rollback")}

func (tx *fakeTx) Commit(context.Context) error {
	if tx.done {
		return sql.ErrTxDone
	}
	x := tx.f.call("commit")
	busy := tx.f.kind == sqldb.SQLite && sqldb.ClassOf(x.err) == sqldb.LockTimeout
	tx.done = !busy
	switch {
	case x.err == nil && tx.aborted:
		return errAborted
	case x.err == nil || x.applied:
		tx.f.change(tx.pending)
		tx.pending = 0
	case !busy:
		tx.pending = 0
	}
	return x.err
}

func (tx *fakeTx) Rollback(context.Context) error {
	tx.rollbacks++
	x := tx.f.call("rollback")
	tx.pending, tx.done = 0, true
	return x.err
}
