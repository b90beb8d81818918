package sqldb_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// inTx are the ways to run a statement in a caller's transaction, and the call of
// the driver that brings its error.
var inTx = map[string]struct {
	call string
	run  func(ctx context.Context, tx *sqldb.Tx) error
}{
	"Exec": {"exec", func(ctx context.Context, tx *sqldb.Tx) error {
		_, err := tx.Exec(ctx, "change")
		return err
	}},
	"Query": {"query", func(ctx context.Context, tx *sqldb.Tx) error {
		_, err := tx.Query(ctx, "change")
		return err
	}},
	"QueryRow": {"query", func(ctx context.Context, tx *sqldb.Tx) error {
		return tx.QueryRow(ctx, "change").Scan(new(int64))
	}},
	"QueryRow, after the row": {"close", func(ctx context.Context, tx *sqldb.Tx) error {
		return tx.QueryRow(ctx, "change").Scan(new(int64))
	}},
	"Query, Err": {"err", func(ctx context.Context, tx *sqldb.Tx) error {
		return all(ctx, tx, true)
	}},
	"Query, Err never asked for": {"err", func(ctx context.Context, tx *sqldb.Tx) error {
		return all(ctx, tx, false)
	}},
	"Query, closed before its end": {"close", func(ctx context.Context, tx *sqldb.Tx) error {
		rows, err := tx.Query(ctx, "change")
		if err != nil {
			return err
		}
		return rows.Close()
	}},
}

func all(ctx context.Context, tx *sqldb.Tx, ask bool) error {
	rows, err := tx.Query(ctx, "change")
	if err != nil {
		return err
	}
	for rows.Next() {
	}
	if ask {
		err = rows.Err()
	}
	return errors.Join(err, rows.Close())
}

// After 1213 and 1020, and after what may have ended it on SQLite, the caller's
// transaction object is rolled back at once, and nothing more reaches the driver; after
// any other error it is left alone.
func TestFaultsInCallersTx(t *testing.T) {
	for _, kind := range sqldb.Kinds() {
		for how, c := range inTx {
			for _, x := range faults(kind) {
				if x.applied {
					continue
				}
				ended := ends(kind, x.err)
				what := fmt.Sprintf("%v/%s/%v", kind, how, x.err)
				f, db := newFake(t, kind)
				f.rows = [][]any{{int64(1)}}
				f.faults[c.call] = x
				tx := db.Tx("of the caller")
				err := c.run(t.Context(), tx)
				if how != "Query, Err never asked for" && !errors.Is(err, x.err) {
					t.Errorf("%s: the error is %v", what, err)
				}
				if got := f.txs[0].rollbacks; got != 0 != ended || got > 1 {
					t.Errorf("%s: rolled back %d times", what, got)
				}
				if (tx.Err() != nil) != ended {
					t.Errorf("%s: Tx.Err is %v", what, tx.Err())
				}
				before := f.count("exec", "query")
				_, err = tx.Exec(t.Context(), "change")
				if (err != nil) != ended {
					t.Errorf("%s: the next statement: %v", what, err)
				}
				if ended && (f.count("exec", "query") != before || sqldb.ClassOf(err) != sqldb.ClassOf(x.err)) {
					t.Errorf("%s: the next statement reached the driver: %v", what, err)
				}
				if f.applied != 0 {
					t.Errorf("%s: %d changes were committed", what, f.applied)
				}
			}
		}
	}
}

// The control: the same transaction without sqldb runs the next statement in
// autocommit.
func TestFaultsInCallersTxControl(t *testing.T) {
	for _, x := range faults(sqldb.MySQL) {
		if !ends(sqldb.MySQL, x.err) {
			continue
		}
		f, _ := newFake(t, sqldb.MySQL)
		f.faults["exec"] = x
		tx, _ := f.Tx(nil)
		_, first := tx.Exec(t.Context(), "change", nil)
		_, second := tx.Exec(t.Context(), "change", nil)
		if first == nil || second != nil || f.applied != 1 {
			t.Errorf("%v, %v, %d applied: the fake does not do what MySQL does", first, second, f.applied)
		}
	}
}

// A Rollback that fails is told, beside the reason.
func TestFaultsRollbackFails(t *testing.T) {
	for _, c := range serverErrors(sqldb.MySQL) {
		if !ends(sqldb.MySQL, c.err) {
			continue
		}
		f, db := newFake(t, sqldb.MySQL)
		gone := errors.New("gone")
		f.faults["exec"], f.faults["rollback"] = fault{err: c.err}, fault{err: gone}
		tx := db.Tx(nil)
		if _, err := tx.Exec(t.Context(), "change"); !errors.Is(err, c.err) || !errors.Is(err, gone) || sqldb.ClassOf(err) != c.class {
			t.Errorf("%s: %v", c.name, err)
		}
		if tx.Err() == nil {
			t.Errorf("%s: the Tx can still be used", c.name)
		}
	}
}

// fn that swallows the error which ended the transaction does not get it committed.
func TestFaultsSwallowed(t *testing.T) {
	for _, kind := range sqldb.Kinds() {
		for how, c := range inTx {
			for _, x := range faults(kind) {
				if x.applied {
					continue
				}
				f, db := newFake(t, kind)
				f.rows = [][]any{{int64(1)}}
				f.faults[c.call] = x
				err := db.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
					_ = c.run(ctx, tx)
					_, _ = tx.Exec(ctx, "change")
					return nil
				})
				if ended := ends(kind, x.err); err != nil && f.applied != 0 || ended && err == nil || ended && sqldb.ClassOf(err) != sqldb.ClassOf(x.err) {
					t.Errorf("%v/%s/%v: %v, with %d applied", kind, how, x.err, err, f.applied)
				}
				if kind == sqldb.Postgres && err == nil {
					t.Errorf("%v/%s/%v: an aborted transaction was reported as committed", kind, how, x.err)
				}
			}
		}
	}
}

// What fn met elsewhere keeps its doubt, such as the COMMIT of another database that
// was cut; only what came through the transaction itself has none.
func TestFaultsOfAnotherDatabase(t *testing.T) {
	for _, kind := range sqldb.Kinds() {
		_, lost := driverErrors()
		for _, c := range lost {
			for how, want := range map[string]bool{"other": true, "ours": false, "other, then ours": true, "ours, then other": true, "InTx in InTx": true} {
				f, db := newFake(t, kind)
				other, otherDB := newFake(t, kind)
				err := db.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
					f.faults["exec"], other.faults["commit"] = fault{err: c.err}, fault{c.err, true}
					_, ours := tx.Exec(ctx, "change")
					foreign, _ := other.Begin(ctx, sqldb.TxOptions{})
					switch how {
					case "ours":
						return fmt.Errorf("ours: %w", ours)
					case "other":
						return fmt.Errorf("other: %w", foreign.Commit(ctx))
					case "ours, then other":
						return errors.Join(ours, foreign.Commit(ctx))
					case "InTx in InTx":
						return otherDB.InTx(ctx, sqldb.TxOptions{}, func(context.Context, *sqldb.Tx) error { return nil })
					}
					return errors.Join(foreign.Commit(ctx), ours)
				})
				if got := sqldb.Uncertain(err); got != want || !errors.Is(err, c.err) || sqldb.ClassOf(err) != sqldb.ConnLost {
					t.Errorf("%v/%s/%s: Uncertain %v: %v", kind, c.name, how, got, err)
				}
			}
		}
	}
}

// A ctx that ends in the middle of any call, which then succeeds or fails, leaves no
// change behind an error either.
func TestFaultsContextEnds(t *testing.T) {
	for _, kind := range sqldb.Kinds() {
		for how, run := range changes {
			for _, call := range []string{"conn", "begin", "exec", "query", "err", "commit", "rollback"} {
				for _, x := range append(faults(kind), fault{}) {
					if x.applied && (call == "conn" || call == "begin") {
						continue
					}
					synctest.Test(t, func(t *testing.T) {
						f, db := newFake(t, kind)
						f.rows = [][]any{{int64(1)}}
						f.faults[call] = x
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						f.during = func(name string) {
							if name == call {
								cancel()
							}
						}
						err := run(ctx, db, f)
						time.Sleep(2 * sqldb.Bound) // who waits for SQLite's lock gives up
						synctest.Wait()
						if err == nil && f.applied != 1 || err != nil && !sqldb.Uncertain(err) && f.applied != 0 || f.applied > 1 {
							t.Errorf("%v/%s/%s: %v (applied %v) answered %v, with %d applied", kind, how, call, x.err, x.applied, err, f.applied)
						}
						for i, c := range f.conns {
							if c.closes != 1 {
								t.Errorf("%v/%s/%s/%v: connection %d was closed %d times", kind, how, call, x.err, i, c.closes)
							}
						}
						for _, tx := range f.txs {
							if !tx.done {
								t.Errorf("%v/%s/%s/%v: a transaction was left open", kind, how, call, x.err)
							}
						}
					})
				}
			}
		}
	}
}
