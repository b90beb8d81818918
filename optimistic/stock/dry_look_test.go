package stock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// gated is a driver whose reads of the row say that they have begun, and then wait.
type gated struct {
	sqldb.Driver
	begun chan struct{}
	gate  chan struct{}
}

func (d gated) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	if strings.HasPrefix(query, "SELECT CASE") || strings.HasPrefix(query, `SELECT "left_count"`) {
		d.begun <- struct{}{}
		select {
		case <-d.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return d.Driver.Query(ctx, query, args)
}

// dryTakes makes a row that is known to be sold out, with its reads behind a gate.
func dryTakes(t *testing.T, db *dbtest.DB) (take func(ctx context.Context) error, d gated) {
	t.Helper()
	bonus(t, db, "0")
	d = gated{begun: make(chan struct{}, 100), gate: make(chan struct{}, 100)}
	handle := db.Wrap(func(inner sqldb.Driver) sqldb.Driver { d.Driver = inner; return d })
	s := open(t, handle, table)
	take = func(ctx context.Context) error { _, err := s.Take(ctx, handle, 10001, 1); return err }
	d.gate <- struct{}{} // the look after the first refusal
	if err := take(t.Context()); !errors.Is(err, stock.ErrSoldOut) {
		t.Fatal(err)
	}
	<-d.begun
	return take, d
}

// Many that ask at once are answered by few reads, and none by one that had begun
// before it asked: what is put back meanwhile is seen.
func TestDryReadTogether(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		take, d := dryTakes(t, db)
		first := make(chan error, 1)
		go func() { first <- take(context.Background()) }()
		<-d.begun // its read is under way
		var wg sync.WaitGroup
		var mu sync.Mutex
		served, refused := 0, 0
		db.MustExec(t, "UPDATE t_bonus SET left_count = 3")
		for range 20 {
			wg.Go(func() {
				err := take(context.Background())
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					served++
				case errors.Is(err, stock.ErrSoldOut):
					refused++
				default:
					t.Error(err)
				}
			})
		}
		for range 60 {
			d.gate <- struct{}{}
		}
		wg.Wait()
		<-first
		if left, _ := row(t, db); left != 0 || refused+served != 20 || served < 2 {
			t.Errorf("%d left, %d served, %d refused", left, served, refused)
		}
	})
}

// Who leaves does not take the others with it, and nobody joins a read that was given
// up.
func TestDryReadLeft(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	take, d := dryTakes(t, db)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- take(ctx) }()
	<-d.begun
	stays := make(chan error, 1)
	go func() { stays <- take(context.Background()) }()
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) || sqldb.Uncertain(err) {
		t.Errorf("%v", err)
	}
	<-d.begun // the next read: the first was given up with the last who waited for it
	d.gate <- struct{}{}
	if err := <-stays; !errors.Is(err, stock.ErrSoldOut) {
		t.Errorf("%v", err)
	}
	if err := take(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
