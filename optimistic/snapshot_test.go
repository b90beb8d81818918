package optimistic_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic"
	"github.com/sqlnative/locks/sqldb"
)

// What has happened since the transaction's snapshot is what a conflict tells, or the
// transaction has to begin anew. The interleaving: the transaction reads, another one
// changes the row and commits, and the transaction updates.
func TestOldSnapshot(t *testing.T) {
	newer := optimistic.Set{"title": "newer", "state": 2}
	for name, c := range map[string]struct {
		change  func(ctx context.Context, a *optimistic.Table, db *sqldb.DB) error
		version int64
		conds   []optimistic.Cond
		want    optimistic.Conflict
	}{
		"stale": {
			func(ctx context.Context, a *optimistic.Table, db *sqldb.DB) error {
				_, err := a.Update(ctx, db, seven, 0, newer)
				return err
			},
			0, nil, optimistic.Stale,
		},
		"gone": {
			func(ctx context.Context, a *optimistic.Table, db *sqldb.DB) error { return a.Delete(ctx, db, seven, 0) },
			0, nil, optimistic.Gone,
		},
		"condition, by somebody without a version": {
			func(ctx context.Context, _ *optimistic.Table, db *sqldb.DB) error {
				_, err := db.Exec(ctx, "UPDATE article SET state = 2")
				return err
			},
			0,
			[]optimistic.Cond{optimistic.If("state", 1)},
			optimistic.Condition,
		},
		// The snapshot's row is neither that which was expected, nor that which is there.
		"stale, to a version that was read elsewhere": {
			func(ctx context.Context, a *optimistic.Table, db *sqldb.DB) error {
				v, err := a.Update(ctx, db, seven, 0, newer)
				if err == nil {
					_, err = a.Update(ctx, db, seven, v, newer)
				}
				return err
			},
			1, nil, optimistic.Stale,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
				a := article(t, db)
				err := db.InTx(t.Context(), repeatable, func(ctx context.Context, tx *sqldb.Tx) error {
					var before, after int64
					if err := tx.QueryRow(ctx, "SELECT version FROM article WHERE id = 7").Scan(&before); err != nil {
						return err
					}
					if err := c.change(ctx, a, db.DB); err != nil {
						t.Error(err)
					}
					// The control: a plain read shows the old row.
					if err := tx.QueryRow(ctx, "SELECT version FROM article WHERE id = 7").Scan(&after); err != nil || after != before {
						t.Errorf("a plain read shows version %d: the snapshot is not old: %v", after, err)
					}
					_, err := a.Update(ctx, tx, seven, c.version, title, c.conds...)
					return err
				})
				// PostgreSQL, and MariaDB with innodb_snapshot_isolation (on since 11.8).
				if sqldb.ClassOf(err) == sqldb.Serialization && db.Kind() != sqldb.MySQL {
					if !sqldb.Retryable(err) || errors.Is(err, optimistic.ErrConflict) {
						t.Error(err)
					}
					return
				}
				if db.Kind() == sqldb.Postgres {
					t.Errorf("PostgreSQL judged by its snapshot: %v", err)
				}
				got := conflict(t, err, c.want)
				if c.want == optimistic.Stale && got.Current != c.version+1 || c.want == optimistic.Condition && got.Failed[0].Actual != int64(2) {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// MariaDB without innodb_snapshot_isolation tells the conflict.
func TestOldSnapshotMariaDB(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		a := article(t, db)
		with(t, db, func(c *mysql.Config) { c.Params = map[string]string{"innodb_snapshot_isolation": "OFF"} })
		err := db.InTx(t.Context(), repeatable, func(ctx context.Context, tx *sqldb.Tx) error {
			var v int64
			if err := tx.QueryRow(ctx, "SELECT version FROM article WHERE id = 7").Scan(&v); err != nil {
				return err
			}
			if _, err := a.Update(ctx, db.DB, seven, 0, title); err != nil {
				t.Error(err)
			}
			_, err := a.Update(ctx, tx, seven, v, title)
			return err
		})
		if c := conflict(t, err, optimistic.Stale); c.Current != 1 {
			t.Errorf("%+v", c)
		}
	})
}

// A row that was inserted after the snapshot is not there for PostgreSQL, which says
// so, and that another try may see it; MySQL and MariaDB see it.
func TestInsertedAfterSnapshot(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		a := article(t, db)
		err := db.InTx(t.Context(), repeatable, func(ctx context.Context, tx *sqldb.Tx) error {
			if err := tx.QueryRow(ctx, "SELECT version FROM article WHERE id = 7").Scan(new(int64)); err != nil {
				return err
			}
			db.MustExec(t, "INSERT INTO article VALUES (8, 'new', 1, 0)")
			_, err := a.Update(ctx, tx, optimistic.Key(8), 5, title)
			return err
		})
		switch {
		case db.Kind() == sqldb.Postgres:
			if c := conflict(t, err, optimistic.Gone); !sqldb.Retryable(err) {
				t.Errorf("%+v", c)
			}
		case sqldb.ClassOf(err) == sqldb.Serialization && db.Kind() == sqldb.MariaDB:
		default:
			conflict(t, err, optimistic.Stale)
		}
		// At READ COMMITTED nothing is in doubt.
		err = db.InTx(t.Context(), sqldb.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx *sqldb.Tx) error {
			_, err := a.Update(ctx, tx, optimistic.Key(9), 0, title)
			return err
		})
		conflict(t, err, optimistic.Gone)
		if sqldb.Retryable(err) {
			t.Errorf("%v", err)
		}
	})
}

// An update in a transaction waits for whoever has the row, and judges what came of
// it. The interleaving: one has updated and not committed; the other one updates with
// the same version, and waits; the first commits, or rolls back.
func TestWaits(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		a := article(t, db)
		rolledBack := errors.New("rolled back")
		for _, commit := range []bool{false, true} {
			done := make(chan error, 1)
			err := db.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
				if _, err := a.Update(ctx, tx, seven, 0, optimistic.Set{"title": "first"}); err != nil {
					return err
				}
				begun := make(chan struct{})
				go func() {
					done <- db.InTx(context.Background(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
						close(begun)
						_, err := a.Update(ctx, tx, seven, 0, optimistic.Set{"title": "second"}, optimistic.If("state", 1))
						if !commit && err == nil {
							return rolledBack
						}
						return err
					})
				}()
				<-begun
				waitBlocked(t, db)
				select {
				case err := <-done:
					t.Errorf("it did not wait: %v", err)
				default:
				}
				if !commit {
					return rolledBack
				}
				return nil
			})
			if !commit && !errors.Is(err, rolledBack) || commit && err != nil {
				t.Fatal(err)
			}
			err = <-done
			if !commit && !errors.Is(err, rolledBack) {
				t.Errorf("after a rollback: %v", err)
			}
			if commit {
				conflict(t, err, optimistic.Stale)
			}
		}
		is(t, db, "first", 1)
	})
}
