package optimistic_test

import (
	"context"
	"io"
	"sync"
	"testing"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic"
	"github.com/sqlnative/locks/sqldb"
)

// fault is what a call answers instead of what it should, once.
type fault struct {
	err error
	// applied: it is done all the same, and only the answer is lost.
	applied bool
	// during is called before the answer is lost.
	during func()
}

// faults are those of a driver: of COMMIT, and of a statement in autocommit.
type faults struct {
	mu           sync.Mutex
	commit, exec *fault
	sent         int // statements in autocommit
}

func (f *faults) take(which **fault) *fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := *which
	*which = nil
	return x
}

// faulty is the same database, with a driver that has faults.
func faulty(db *sqldb.DB) (*sqldb.DB, *faults) {
	f := &faults{}
	return db.Wrap(func(d sqldb.Driver) sqldb.Driver { return faultyDriver{d, f} }), f
}

type faultyDriver struct {
	sqldb.Driver
	f *faults
}

func (d faultyDriver) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	tx, err := d.Driver.Begin(ctx, o)
	if err != nil {
		return nil, err
	}
	return faultyTx{tx, d.f, &d.f.commit}, nil
}

// Exec is how a statement is sent again.
func (d faultyDriver) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	d.f.mu.Lock()
	d.f.sent++
	d.f.mu.Unlock()
	return d.Driver.Exec(ctx, query, args)
}

func (d faultyDriver) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	c, err := d.Driver.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return faultyConn{c, d.f}, nil
}

type faultyConn struct {
	sqldb.DriverConn
	f *faults
}

func (c faultyConn) Exec(ctx context.Context, query string, args []any) (res sqldb.Result, err error) {
	c.f.mu.Lock()
	c.f.sent++
	c.f.mu.Unlock()
	x := c.f.take(&c.f.exec)
	if x == nil {
		return c.DriverConn.Exec(ctx, query, args)
	}
	if x.applied {
		if _, err := c.DriverConn.Exec(ctx, query, args); err != nil {
			return res, err
		}
	}
	if x.during != nil {
		x.during()
	}
	return res, x.err
}

// Begin is how SQLite runs a statement in autocommit: its COMMIT is what has no answer.
func (c faultyConn) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	tx, err := c.DriverConn.Begin(ctx, o)
	if err != nil {
		return nil, err
	}
	c.f.mu.Lock()
	c.f.sent++
	c.f.mu.Unlock()
	return faultyTx{tx, c.f, &c.f.exec}, nil
}

func (c faultyConn) PromptBegin() bool { return true }

type faultyTx struct {
	sqldb.DriverTx
	f     *faults
	which **fault
}

func (t faultyTx) Commit(ctx context.Context) error {
	x := t.f.take(t.which)
	if x == nil {
		return t.DriverTx.Commit(ctx)
	}
	end := t.DriverTx.Rollback
	if x.applied {
		end = t.DriverTx.Commit
	}
	if err := end(ctx); err != nil {
		return err
	}
	if x.during != nil {
		x.during()
	}
	return x.err
}

// A COMMIT without an answer is not tried again: the change may be there.
func TestDoUncertain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		article(t, db)
		handle, f := faulty(db.DB)
		a := open(t, handle, articles)
		at := int64(0)
		for _, applied := range []bool{true, false} {
			f.commit = &fault{err: io.ErrUnexpectedEOF, applied: applied}
			tries := 0
			err := optimistic.Do(t.Context(), handle, sqldb.Policy{}, func(ctx context.Context, tx *sqldb.Tx) error {
				tries++
				return raise(a, optimistic.Set{"state": tries})(ctx, tx)
			})
			if !sqldb.Uncertain(err) || tries != 1 {
				t.Errorf("applied %v: %d tries, %v", applied, tries, err)
			}
			if applied {
				at++
			}
			is(t, db, "old", at)
		}
	})
}

// An update in autocommit that has no answer is settled by sending it again, if that is
// applied; it is applied once, whatever came of the first.
func TestUncertain(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		article(t, db)
		handle, f := faulty(db.DB)
		a := open(t, handle, articles)

		// The first did not arrive.
		f.exec = &fault{err: io.ErrUnexpectedEOF}
		if v, err := a.Update(t.Context(), handle, seven, 0, title); err != nil || v != 1 || f.sent != 2 {
			t.Errorf("lost on its way: version %d, %v, sent %d times", v, err, f.sent)
		}
		is(t, db, "new", 1)

		// The first was applied: the second is refused, and nobody knows by whom.
		f.sent, f.exec = 0, &fault{err: io.ErrUnexpectedEOF, applied: true}
		if v, err := a.Update(t.Context(), handle, seven, 1, title); !sqldb.Uncertain(err) || sqldb.Retryable(err) || v != 1 || f.sent != 2 {
			t.Errorf("applied: version %d, %v, sent %d times", v, err, f.sent)
		}
		is(t, db, "new", 2)

		// The first did not arrive, and somebody else was quicker than the second.
		other := open(t, db.DB, articles)
		f.sent, f.exec = 0, &fault{err: io.ErrUnexpectedEOF, during: func() {
			if _, err := other.Update(context.Background(), db.DB, seven, 2, optimistic.Set{"title": "other"}); err != nil {
				t.Error(err)
			}
		}}
		if v, err := a.Update(t.Context(), handle, seven, 2, title); !sqldb.Uncertain(err) || v != 2 {
			t.Errorf("somebody else: version %d, %v", v, err)
		}
		is(t, db, "other", 3)

		// Who has gone does not want it any more.
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f.sent, f.exec = 0, &fault{err: io.ErrUnexpectedEOF, during: cancel}
		if v, err := a.Update(ctx, handle, seven, 3, title); !sqldb.Uncertain(err) || v != 3 || f.sent != 1 {
			t.Errorf("gone: version %d, %v, sent %d times", v, err, f.sent)
		}
		is(t, db, "other", 3)

		f.sent, f.exec = 0, &fault{err: io.ErrUnexpectedEOF}
		if err := a.Delete(t.Context(), handle, seven, 3); err != nil || f.sent != 2 {
			t.Errorf("a delete: %v, sent %d times", err, f.sent)
		}
	})
}

// A ctx that ends while an update waits for a row changes nothing, and says so. The
// interleaving: another transaction has the row; ctx ends; the row is given up.
func TestCancelled(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		a := article(t, db)
		holder := db.Another(t)
		tx, err := holder.SQL.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec("UPDATE article SET title = 'held' WHERE id = 7"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := a.Update(ctx, db.DB, seven, 0, title)
			done <- err
		}()
		waitBlocked(t, db)
		cancel()
		err = <-done
		if err == nil || ctx.Err() == nil || sqldb.Uncertain(err) {
			t.Errorf("the answer is %v", err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		is(t, db, "held", 0)
	})
}
