package sqldb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/sqldb"
)

// ends reports whether the server ends the transaction with this error, or on
// SQLite, may: see sqlitedb's tests of interrupts and of a full disk.
func ends(kind sqldb.Kind, err error) bool {
	if kind == sqldb.SQLite {
		switch sqldb.ClassOf(err) {
		case sqldb.Canceled, sqldb.Exhausted, sqldb.ConnLost:
			return true
		}
		return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	}
	var m *mysql.MySQLError
	return kind.InnoDB() && errors.As(err, &m) && (m.Number == 1213 || m.Number == 1020)
}

// faults are all that a call can answer on one kind of database: each refused by
// the server, and those without a verdict once more with the change applied.
func faults(kind sqldb.Kind) (list []fault) {
	neverSent, lost := driverErrors()
	for _, c := range append(serverErrors(kind), neverSent...) {
		list = append(list, fault{err: c.err})
		if c.uncertain {
			list = append(list, fault{c.err, true})
		}
	}
	for _, c := range lost {
		list = append(list, fault{c.err, false}, fault{c.err, true})
	}
	for _, err := range contextErrors() {
		list = append(list, fault{err, false}, fault{err, true})
	}
	return append(list, fault{err: errors.New("something else")}, fault{errors.New("something else"), true})
}

// changes are the ways to make one change that sqldb runs itself.
var changes = map[string]func(ctx context.Context, db *sqldb.DB, f *fake) error{
	"InTx, Exec": func(ctx context.Context, db *sqldb.DB, _ *fake) error {
		return db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			_, err := tx.Exec(ctx, "change")
			return err
		})
	},
	"InTx, QueryRow": func(ctx context.Context, db *sqldb.DB, _ *fake) error {
		return db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			return tx.QueryRow(ctx, "change").Scan(new(int64))
		})
	},
	"Change": func(ctx context.Context, db *sqldb.DB, _ *fake) error {
		_, err := db.Change(ctx, sqldb.Change{Op: "change", Query: "change"})
		return err
	},
	"Change returning": func(ctx context.Context, db *sqldb.DB, _ *fake) error {
		_, err := db.Change(ctx, sqldb.Change{Op: "change", Query: "change", Returning: true})
		return err
	},
	"Change without end": func(_ context.Context, db *sqldb.DB, _ *fake) error {
		_, err := db.Change(context.Background(), sqldb.Change{Op: "change", Query: "change"})
		return err
	},
	"Change settled": func(ctx context.Context, db *sqldb.DB, f *fake) error {
		_, err := db.Change(ctx, sqldb.Change{Op: "change", Query: "change", Settle: settle(f)})
		return err
	},
}

// settle finds out what became of the change, by the record of the database.
func settle(f *fake) func(context.Context, *sqldb.DB) (*sqldb.Changed, bool, error) {
	return func(ctx context.Context, db *sqldb.DB) (*sqldb.Changed, bool, error) {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		return sqldb.NewChanged(db.Kind(), sqldb.Result{RowsAffected: 1}), f.applied > 0, nil
	}
}

// Whatever a call answers, what sqldb returns is the truth.
func TestFaults(t *testing.T) {
	for _, kind := range sqldb.Kinds() {
		for how, run := range changes {
			for _, call := range []string{"none", "conn", "begin", "exec", "query", "values", "err", "close", "commit", "rollback"} {
				t.Run(fmt.Sprintf("%v/%s/%s", kind, how, call), func(t *testing.T) {
					for _, x := range faults(kind) {
						if x.applied && slices.Contains([]string{"conn", "begin"}, call) {
							continue
						}
						if call == "values" && x.err.Error() != "something else" {
							continue // a value that can't be read is no server's error
						}
						synctest.Test(t, func(t *testing.T) { oneFault(t, kind, run, call, x) })
					}
				})
			}
		}
	}
}

func oneFault(t *testing.T, kind sqldb.Kind, run func(context.Context, *sqldb.DB, *fake) error, call string, x fault) {
	f, db := newFake(t, kind)
	f.rows = [][]any{{int64(1)}}
	f.faults[call] = x
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := run(ctx, db, f)
	what := fmt.Sprintf("%v (applied %v) answered %v", x.err, x.applied, err)
	switch {
	case err == nil && f.applied != 1:
		t.Errorf("%s: nil, and %d applied", what, f.applied)
	case err != nil && !sqldb.Uncertain(err) && f.applied != 0:
		t.Errorf("%s: no doubt, and %d applied", what, f.applied)
	case f.applied > 1:
		t.Errorf("%s: applied %d times", what, f.applied)
	}
	for i, c := range f.conns {
		if c.closes != 1 {
			t.Errorf("%s: connection %d was closed %d times", what, i, c.closes)
		}
		if kind != sqldb.SQLite && sqldb.Uncertain(err) && !c.discarded {
			t.Errorf("%s: connection %d went back into the pool, in doubt", what, i)
		}
	}
	for i, tx := range f.txs {
		if !tx.done {
			t.Errorf("%s: transaction %d was left open", what, i)
		}
	}
}

// The error of a call keeps its class on the way out, for Retry.
func TestFaultsKeepTheirClass(t *testing.T) {
	for _, kind := range sqldb.Kinds() {
		for _, call := range []string{"begin", "exec", "commit"} {
			for _, c := range serverErrors(kind) {
				if call == "commit" && c.class == sqldb.LockTimeout && kind != sqldb.SQLite {
					continue // TestFaultsLockTimeoutAtCommit
				}
				synctest.Test(t, func(t *testing.T) {
					f, db := newFake(t, kind)
					f.faults[call] = fault{err: c.err}
					err := changes["InTx, Exec"](t.Context(), db, f)
					if kind == sqldb.SQLite && call == "commit" && c.class == sqldb.LockTimeout {
						if err != nil { // it was committed again
							t.Errorf("%v %s %s: %v", kind, call, c.name, err)
						}
						return
					}
					if sqldb.ClassOf(err) != c.class || sqldb.Retryable(err) != c.retry || !errors.Is(err, c.err) {
						t.Errorf("%v %s %s: %v is %v, retryable %v", kind, call, c.name, err, sqldb.ClassOf(err), sqldb.Retryable(err))
					}
				})
			}
		}
	}
}

// A conflict that COMMIT tells is tried again, and applied once.
func TestFaultsRetried(t *testing.T) {
	for _, kind := range sqldb.Kinds() {
		for _, call := range []string{"begin", "exec", "err", "commit"} {
			for _, x := range faults(kind) {
				if x.applied && call == "begin" {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					f, db := newFake(t, kind)
					f.rows = [][]any{{int64(1)}}
					f.faults[call] = x
					run := changes["InTx, Exec"]
					if call == "err" {
						run = changes["InTx, QueryRow"]
					}
					err := sqldb.Retry(t.Context(), sqldb.Policy{}, func(ctx context.Context) error { return run(ctx, db, f) })
					switch {
					case err == nil && f.applied != 1, err != nil && !sqldb.Uncertain(err) && f.applied != 0, f.applied > 1:
						t.Errorf("%v %s %v (applied %v): %v, %d applied", kind, call, x.err, x.applied, err, f.applied)
					case sqldb.Retryable(x.err) && err != nil && !(call == "commit" && sqldb.ClassOf(x.err) == sqldb.LockTimeout):
						t.Errorf("%v %s %v: not retried: %v", kind, call, x.err, err)
					}
				})
			}
		}
	}
}

// A lock timeout that COMMIT tells is tried again too (a deferred constraint of
// PostgreSQL waits for locks in there): a second COMMIT, which only SQLite knows,
// would hide it behind database/sql's ErrTxDone.
func TestFaultsLockTimeoutAtCommit(t *testing.T) {
	for _, kind := range sqldb.Kinds() {
		for _, c := range serverErrors(kind) {
			if c.class != sqldb.LockTimeout {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				f, db := newFake(t, kind)
				f.faults["commit"] = fault{err: c.err}
				err := changes["InTx, Exec"](t.Context(), db, f)
				if kind != sqldb.SQLite && (!errors.Is(err, c.err) || !sqldb.Retryable(err) || f.count("commit") != 1) {
					t.Errorf("%v %s: %v after %d commits", kind, c.name, err, f.count("commit"))
				}
				if kind == sqldb.SQLite && (err != nil || f.applied != 1) {
					t.Errorf("%v %s: %v, %d applied", kind, c.name, err, f.applied)
				}
			})
		}
	}
}

// Where sqldb knows that nothing was applied, Uncertain does not say otherwise,
// whatever the cause says about the connection.
func TestFaultsCertain(t *testing.T) {
	for _, kind := range sqldb.Kinds() {
		for _, x := range faults(kind) {
			for how, calls := range map[string][]string{
				"InTx, Exec":     {"begin", "exec"},
				"InTx, QueryRow": {"begin", "query", "err", "close"},
				"Change":         {"conn"},
				"Change settled": {"conn", "exec", "commit"},
			} {
				for _, call := range calls {
					if x.applied {
						continue
					}
					synctest.Test(t, func(t *testing.T) {
						f, db := newFake(t, kind)
						f.faults[call] = x
						err := changes[how](t.Context(), db, f)
						if sqldb.Uncertain(err) || err != nil && f.applied != 0 {
							t.Errorf("%v/%s/%s: %v: there is no doubt: %v", kind, how, call, x.err, err)
						}
					})
				}
			}
		}
	}
}
