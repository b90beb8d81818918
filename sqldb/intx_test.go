package sqldb_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
)

func TestInTx(t *testing.T) {
	ours := errors.New("ours")
	cases := []struct {
		name string
		fn   func(ctx context.Context, cancel func(), tx *sqldb.Tx) error
		want error // nil: committed
	}{
		{"commit", func(context.Context, func(), *sqldb.Tx) error { return nil }, nil},
		{"error", func(context.Context, func(), *sqldb.Tx) error { return ours }, ours},
		{"ctx ends and fn does not mind", func(_ context.Context, cancel func(), _ *sqldb.Tx) error { cancel(); return nil }, context.Canceled},
	}
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		counter(t, db)
		want := int64(start)
		for _, c := range cases {
			ctx, cancel := context.WithCancel(t.Context())
			err := db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
				if _, err := tx.Exec(ctx, decrement().Query); err != nil {
					return err
				}
				return c.fn(ctx, cancel, tx)
			})
			cancel()
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v", c.name, err)
			}
			if c.want == nil {
				want--
			}
			if got := settled(t, db); got != want {
				t.Errorf("%s: left_count is %d, want %d", c.name, got, want)
			}
		}
		func() { // a panic rolls back, and goes on
			defer func() {
				if p := recover(); p != ours {
					t.Errorf("recovered %v", p)
				}
			}()
			_ = db.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
				if _, err := tx.Exec(ctx, decrement().Query); err != nil {
					t.Error(err)
				}
				panic(ours)
			})
		}()
		if got := settled(t, db); got != want {
			t.Errorf("panic: left_count is %d, want %d", got, want)
		}
	})
}

// COMMIT runs detached: a ctx that ends once it was sent changes nothing.
func TestInTxCommitIsDetached(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		counter(t, db)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		wrapped := db.Wrap(func(d sqldb.Driver) sqldb.Driver { return cancelAtCommit{d, cancel} })
		err := wrapped.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			_, err := tx.Exec(ctx, decrement().Query)
			return err
		})
		if got := settled(t, db); err != nil || got != start-1 {
			t.Errorf("%v, and left_count is %d", err, got)
		}
	})
}

// cancelAtCommit ends the caller's ctx just before COMMIT.
type cancelAtCommit struct {
	sqldb.Driver
	cancel func()
}

func (d cancelAtCommit) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	tx, err := d.Driver.Begin(ctx, o)
	return cancelTx{tx, d.cancel}, err
}

type cancelTx struct {
	sqldb.DriverTx
	cancel func()
}

func (t cancelTx) Commit(ctx context.Context) error {
	t.cancel()
	return t.DriverTx.Commit(ctx)
}

// An error of the server that fn swallows is not committed over: PostgreSQL
// answers COMMIT with ROLLBACK, and InTx says so.
func TestInTxSwallowedError(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		counter(t, db)
		err := db.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			_, _ = tx.Exec(ctx, decrement().Query)
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return nil
		})
		if err == nil || sqldb.Uncertain(err) {
			t.Errorf("the answer is %v", err)
		}
		if got := settled(t, db); got != start {
			t.Errorf("left_count is %d", got)
		}
	})
}
