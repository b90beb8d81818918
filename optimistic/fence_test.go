package optimistic_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic"
	"github.com/sqlnative/locks/sqldb"
)

// fenced makes an article with a token.
func fenced(t testing.TB, db *dbtest.DB) *optimistic.Table {
	t.Helper()
	db.MustExec(t, "CREATE TABLE article (id BIGINT PRIMARY KEY, title VARCHAR(40), version BIGINT NOT NULL DEFAULT 0, token BIGINT DEFAULT 0)",
		"INSERT INTO article (id, title) VALUES (7, 'old')")
	return open(t, db.DB, optimistic.Table{Name: "article", Key: []string{"id"}, Token: "token"})
}

// write is what a holder does: fence, and write.
func write(ctx context.Context, db *sqldb.DB, opts sqldb.TxOptions, a *optimistic.Table, token int64) error {
	return db.InTx(ctx, opts, func(ctx context.Context, tx *sqldb.Tx) error {
		if err := optimistic.Fence(ctx, tx, a, seven, token); err != nil {
			return err
		}
		return scribble(ctx, tx, token)
	})
}

func scribble(ctx context.Context, h sqldb.Handle, token int64) error {
	_, err := h.Exec(ctx, fmt.Sprintf("UPDATE article SET title = 'holder %d', version = version + 1 WHERE id = 7", token))
	return err
}

// fencedOff fails the test unless err says that the row has seen a newer token.
func fencedOff(t testing.TB, err error, token, seen int64) {
	t.Helper()
	var f *optimistic.FencedError
	if !errors.As(err, &f) || !errors.Is(err, optimistic.ErrFenced) || f.Token != token || f.Seen != seen || f.Table != "article" || f.Key[0] != int64(7) {
		t.Errorf("the answer is %v, want: token %d is older than %d", err, token, seen)
	}
	if sqldb.Retryable(err) || errors.Is(err, optimistic.ErrConflict) {
		t.Error("a token that is too old stays so")
	}
}

// Newer tokens and equal ones pass, older ones do not, in whatever way rows are
// counted, and a refusal leaves the transaction usable.
func TestFence(t *testing.T) {
	pools(t, func(t *testing.T, db *dbtest.DB) {
		a := fenced(t, db)
		for _, token := range []int64{5, 5, 9, 9, math.MaxInt64 - 1} {
			if err := write(t.Context(), db.DB, sqldb.TxOptions{}, a, token); err != nil {
				t.Fatalf("token %d: %v", token, err)
			}
			if token != 9 {
				continue
			}
			fencedOff(t, write(t.Context(), db.DB, sqldb.TxOptions{}, a, 5), 5, 9)
			err := db.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
				for range 2 { // the same holder, twice in one transaction
					if err := optimistic.Fence(ctx, tx, a, seven, 9); err != nil {
						t.Error(err)
					}
				}
				err := optimistic.Fence(ctx, tx, a, seven, 8)
				fencedOff(t, err, 8, 9)
				if want := "optimistic: article id 7: fenced off: token 8 is older than 9, which the row has seen: the lock was lost to a later holder"; err.Error() != want {
					t.Errorf("%q, want %q", err, want)
				}
				return optimistic.Fence(ctx, tx, a, seven, 9)
			})
			if err != nil {
				t.Error(err)
			}
		}
		is(t, db, fmt.Sprintf("holder %d", int64(math.MaxInt64-1)), 5)
	})
}

// The control: without Fence, an older holder that was stopped writes over what a
// newer one has written.
func TestWithoutFence(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		a := fenced(t, db)
		if err := write(t.Context(), db.DB, sqldb.TxOptions{}, a, 9); err != nil {
			t.Fatal(err)
		}
		if err := scribble(t.Context(), db.DB, 5); err != nil {
			t.Fatal(err)
		}
		is(t, db, "holder 5", 2)
	})
}

// Whoever has fenced has the row until its transaction ends, also with an equal token.
// The interleaving: the one fences and writes; the other one fences, and waits; the
// first commits, or rolls back. An older one that comes later is refused if the newer
// has committed, and passes if it has not; a newer one that comes later passes after
// an older one, which is then refused.
func TestFenceOrder(t *testing.T) {
	rolledBack := errors.New("rolled back")
	for name, c := range map[string]struct {
		before, first, second int64
		commit                bool
		refused               int64
		want                  string
		version               int64
	}{
		"newer first":                   {1, 9, 5, true, 9, "holder 9", 1},
		"newer first, rolled back":      {1, 9, 5, false, 0, "holder 5", 1},
		"older first":                   {1, 5, 9, true, 0, "holder 9", 2},
		"equal, which writes no token":  {5, 5, 9, true, 0, "holder 9", 2},
		"equal, and the same once more": {5, 5, 5, true, 0, "holder 5", 2},
	} {
		t.Run(name, func(t *testing.T) {
			dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
				a := fenced(t, db)
				db.MustExec(t, fmt.Sprintf("UPDATE article SET token = %d", c.before))
				done := make(chan error, 1)
				err := db.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
					if err := optimistic.Fence(ctx, tx, a, seven, c.first); err != nil {
						t.Error(err)
					}
					go func() { done <- write(context.Background(), db.DB, sqldb.TxOptions{}, a, c.second) }()
					waitBlocked(t, db)
					if err := scribble(ctx, tx, c.first); err != nil {
						t.Error(err)
					}
					if !c.commit {
						return rolledBack
					}
					return nil
				})
				if !c.commit && !errors.Is(err, rolledBack) || c.commit && err != nil {
					t.Error(err)
				}
				if err := <-done; c.refused != 0 {
					fencedOff(t, err, c.second, c.refused)
				} else if err != nil {
					t.Error(err)
				}
				is(t, db, c.want, c.version)
				if c.second > c.first {
					fencedOff(t, write(t.Context(), db.DB, sqldb.TxOptions{}, a, c.first), c.first, c.second)
				}
			})
		})
	}
}

// On SQLite whoever has fenced has the database's write lock.
func TestFenceLocksSQLite(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.SQLite}, func(t *testing.T, db *dbtest.DB) {
		a := fenced(t, db)
		busy(t, db, "_pragma=busy_timeout(20)") // BEGIN DEFERRED
		for range 2 {                           // the second time with an equal token
			tx, err := db.SQL.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := optimistic.Fence(t.Context(), db.Tx(tx), a, seven, 9); err != nil {
				t.Fatal(err)
			}
			if err := scribble(t.Context(), db.DB, 5); sqldb.ClassOf(err) != sqldb.LockTimeout {
				t.Errorf("another one has written: %v", err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		fencedOff(t, write(t.Context(), db.DB, sqldb.TxOptions{}, a, 5), 5, 9)
	})
}

// An old snapshot shows an old token, and lets nobody through. The interleaving: the
// older holder's transaction reads, the newer one fences, writes and commits, and the
// older one fences.
func TestFenceOldSnapshot(t *testing.T) {
	check := func(t *testing.T, db *dbtest.DB) {
		a := fenced(t, db)
		old := func(during func()) error {
			return db.InTx(t.Context(), repeatable, func(ctx context.Context, tx *sqldb.Tx) error {
				var token int64
				if err := tx.QueryRow(ctx, "SELECT token FROM article WHERE id = 7").Scan(&token); err != nil {
					return err
				}
				during()
				if err := optimistic.Fence(ctx, tx, a, seven, 5); err != nil {
					return err
				}
				return scribble(ctx, tx, 5)
			})
		}
		err := old(func() {
			if err := write(t.Context(), db.DB, sqldb.TxOptions{}, a, 9); err != nil {
				t.Error(err)
			}
		})
		if sqldb.ClassOf(err) == sqldb.Serialization && db.Kind() != sqldb.MySQL {
			err = old(func() {}) // as Retry does it
		}
		fencedOff(t, err, 5, 9)
		is(t, db, "holder 9", 1)
	}
	dbtest.Servers(t, check)
	dbtest.On(t, []sqldb.Kind{sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		with(t, db, func(c *mysql.Config) { c.Params = map[string]string{"innodb_snapshot_isolation": "OFF"} })
		check(t, db)
	})
}

// A row that is missing, a token that is NULL, one that does not fit.
func TestFenceBadRow(t *testing.T) {
	pools(t, func(t *testing.T, db *dbtest.DB) {
		a := fenced(t, db)
		fence := func(a *optimistic.Table, key optimistic.RowKey, token int64) error {
			return db.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
				return optimistic.Fence(ctx, tx, a, key, token)
			})
		}
		if err := fence(a, optimistic.Key(8), 9); !errors.Is(err, optimistic.ErrNotFound) || !strings.Contains(err.Error(), "article id 8") || sqldb.Retryable(err) {
			t.Errorf("no row: %v", err)
		}
		db.MustExec(t, "UPDATE article SET token = NULL")
		if err := fence(a, seven, 9); !errors.Is(err, optimistic.ErrNull) || !strings.Contains(err.Error(), "token is NULL") {
			t.Errorf("NULL: %v", err)
		}
		db.MustExec(t, "CREATE TABLE twice (id BIGINT, token BIGINT NOT NULL)", "INSERT INTO twice VALUES (7, 0), (7, 0)")
		twice := open(t, db.DB, optimistic.Table{Name: "twice", Key: []string{"id"}, Token: "token"})
		if err := fence(twice, seven, 9); !errors.Is(err, optimistic.ErrBadRow) {
			t.Errorf("two rows: %v", err)
		}
		missing := open(t, db.DB, optimistic.Table{Name: "article", Key: []string{"id"}, Token: "epoch"})
		if err := fence(missing, seven, 9); sqldb.ClassOf(err) != sqldb.NoColumn || !strings.Contains(err.Error(), "epoch") {
			t.Errorf("no column: %v", err)
		}
		if db.Kind() == sqldb.SQLite {
			db.MustExec(t, "UPDATE article SET token = 'abc'")
			if err := fence(a, seven, 9); !errors.Is(err, optimistic.ErrBadRow) {
				t.Errorf("a text: %v", err)
			}
			return
		}
		db.MustExec(t, "CREATE TABLE small (id BIGINT PRIMARY KEY, token INT NOT NULL)", "INSERT INTO small VALUES (7, 0)")
		small := open(t, db.DB, optimistic.Table{Name: "small", Key: []string{"id"}, Token: "token"})
		if err := fence(small, seven, 1_700_000_000_000_000); !errors.Is(err, optimistic.ErrOverflow) {
			t.Errorf("a token that does not fit: %v", err)
		}
		if err := fence(small, seven, 9); err != nil {
			t.Error(err)
		}
	})
}

// A version beside the token is left alone.
func TestFenceAndUpdate(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		fenced(t, db)
		a := open(t, db.DB, optimistic.Table{Name: "article", Key: []string{"id"}, Version: "version", Token: "token"})
		err := db.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			if err := optimistic.Fence(ctx, tx, a, seven, 9); err != nil {
				return err
			}
			_, err := a.Update(ctx, tx, seven, 0, title)
			return err
		})
		if err != nil {
			t.Error(err)
		}
		is(t, db, "new", 1)
	})
}

func TestFenceRefusedBeforeSQL(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	a := fenced(t, db)
	versions := open(t, db.DB, articles)
	other, err := sqldb.New(nil, sqldb.Server{Kind: sqldb.MySQL, Schema: "x"})
	if err != nil {
		t.Fatal(err)
	}
	mysqls := open(t, other, optimistic.Table{Name: "article", Key: []string{"id"}, Token: "token"})
	both(t, db, func(t *testing.T, h sqldb.Handle) {
		tx, ok := h.(*sqldb.Tx)
		if !ok {
			return
		}
		for name, c := range map[string]struct {
			tx    *sqldb.Tx
			t     *optimistic.Table
			key   optimistic.RowKey
			token int64
		}{
			"no Tx": {nil, a, seven, 9}, "a pool": {db.Tx(db.SQL), a, seven, 9}, "no table": {tx, nil, seven, 9}, "not by New": {tx, &optimistic.Table{}, seven, 9},
			"no Token": {tx, versions, seven, 9}, "another database": {tx, mysqls, seven, 9}, "no key": {tx, a, optimistic.Key(), 9},
			"float key": {tx, a, optimistic.Key(7.5), 9}, "token 0": {tx, a, seven, 0}, "token -1": {tx, a, seven, -1},
		} {
			if err := optimistic.Fence(t.Context(), c.tx, c.t, c.key, c.token); !errors.Is(err, optimistic.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	is(t, db, "old", 0)
}
