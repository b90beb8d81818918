package stock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

const goroutines = 64

// 64 goroutines take 1 to 3, put back, cancel at random and take inside
// transactions that are sometimes rolled back: what is left is what the answers
// say, and never below zero.
func TestConserved(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		const start = 300
		s := bonus(t, db, "300")
		db.MustExec(t, "CREATE TABLE seen (n BIGINT)")
		var sum, changes, refused atomic.Int64
		sum.Store(start)
		done := func(err error, n int64, left int64) {
			switch {
			case err == nil:
				sum.Add(n)
				changes.Add(1)
				if left < 0 {
					t.Errorf("%d left", left)
				}
			case errors.Is(err, stock.ErrSoldOut):
				refused.Add(1)
			case errors.Is(err, context.Canceled) && !sqldb.Uncertain(err):
			default:
				t.Error(err)
			}
		}
		rolledBack := errors.New("rolled back")
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for range 12 {
					n := rand.Int64N(3) + 1
					ctx, cancel := context.WithCancel(context.Background())
					switch rand.IntN(5) {
					case 0:
						left, err := s.Put(ctx, db.DB, 10001, 1)
						done(err, 1, left)
					case 1:
						var left int64
						keep := rand.IntN(2) == 0
						err := sqldb.Retry(ctx, sqldb.Policy{Attempts: 100}, func(ctx context.Context) error {
							return db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) (err error) {
								if left, err = s.Take(ctx, tx, 10001, n); err == nil && !keep {
									err = rolledBack
								}
								return err
							})
						})
						if !errors.Is(err, rolledBack) {
							done(err, -n, left)
						}
					case 2:
						timer := time.AfterFunc(rand.N(5*time.Millisecond), cancel)
						left, err := s.Take(ctx, db.DB, 10001, n)
						timer.Stop()
						done(err, -n, left)
					default:
						left, err := s.Take(ctx, db.DB, 10001, n)
						done(err, -n, left)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		left, version := row(t, db)
		if left != sum.Load() || left < 0 || version != changes.Load() {
			t.Errorf("left %d after %d changes; the answers say %d after %d", left, version, sum.Load(), changes.Load())
		}
		if refused.Load() == 0 {
			t.Error("nobody was refused: the test has shown nothing")
		}
	})
}

// The control: who reads and then writes what was computed oversells. The barrier
// between the two makes it certain.
func TestNaiveOversells(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		bonus(t, db, "1")
		var read, wrote sync.WaitGroup
		read.Add(2)
		var served atomic.Int64
		for range 2 {
			wrote.Go(func() {
				var left int64
				err := db.QueryRow(context.Background(), "SELECT left_count FROM t_bonus WHERE id = 10001").Scan(&left)
				read.Done()
				read.Wait()
				if err == nil && left >= 1 {
					_, err = db.Exec(context.Background(), "UPDATE t_bonus SET left_count = 0 WHERE id = 10001")
					served.Add(1)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wrote.Wait()
		if served.Load() != 2 {
			t.Errorf("%d of 2 were served from a stock of 1", served.Load())
		}
	})
}
