package locktest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/sqlnative/locks/sqldb"
)

// Begin begins a transaction that has no database behind it: it runs no
// statements, but [lock.Lock.Guard] and ReleaseIn of this Memory's locks work in it as
// in a real one, until commit or rollback is called.
func (m *Memory) Begin() (tx *sqldb.Tx, commit, rollback func() error) {
	t := &memoryTx{m: m}
	end := func(f func(context.Context) error) func() error {
		return func() error { return f(context.Background()) }
	}
	return noDatabase().Tx(t), end(t.Commit), end(t.Rollback)
}

// noDatabase is a handle without anything behind it.
func noDatabase() *sqldb.DB {
	db, err := sqldb.New(nothing{}, sqldb.Server{Kind: sqldb.SQLite, Version: "none", Schema: "main"})
	if err != nil {
		panic("locktest: " + err.Error())
	}
	return db
}

// memoryTx is a transaction without a database.
type memoryTx struct {
	nothing
	m    *Memory
	done bool
	ends []func(committed bool)
}

// atEnd has f called when the transaction ends. m.mu is held, then as now.
func (t *memoryTx) atEnd(f func(committed bool)) { t.ends = append(t.ends, f) }

// Commit is [sqldb.DriverTx]'s.
func (t *memoryTx) Commit(context.Context) error { return t.end(true) }

// Rollback is [sqldb.DriverTx]'s.
func (t *memoryTx) Rollback(context.Context) error { return t.end(false) }

func (t *memoryTx) end(committed bool) error {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	if t.done {
		return sql.ErrTxDone
	}
	t.done = true
	for _, f := range t.ends {
		f(committed)
	}
	return nil
}

// nothing is a driver that runs no statement.
type nothing struct{}

var errNoDatabase = errors.New("locktest: there is no database here to run statements on")

func (nothing) Exec(context.Context, string, []any) (sqldb.Result, error) {
	return sqldb.Result{}, errNoDatabase
}

func (nothing) Query(context.Context, string, []any) (sqldb.DriverRows, error) {
	return nil, errNoDatabase
}

func (nothing) Begin(context.Context, sqldb.TxOptions) (sqldb.DriverTx, error) {
	return nil, errNoDatabase
}

func (nothing) Conn(context.Context) (sqldb.DriverConn, error) { return nil, errNoDatabase }

func (nothing) Tx(x any) (sqldb.DriverTx, error) {
	if t, ok := x.(*memoryTx); ok {
		return t, nil
	}
	return nil, fmt.Errorf("%T is no transaction of a Memory", x)
}

func (nothing) MaxConns() int { return 0 }

func (nothing) SQL() (*sql.DB, func()) { return nil, func() {} }
