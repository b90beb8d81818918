package stock_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// Whatever call breaks, and whether it was applied or not, the caller is told the
// truth: nil was done, an error was not, and Uncertain nobody knows. Nothing is done
// twice, and nothing by half.
func TestSlottedFaults(t *testing.T) {
	faults := map[string]struct {
		err   error
		after bool
	}{
		"lost before":   {io.ErrUnexpectedEOF, false},
		"lost behind":   {io.ErrUnexpectedEOF, true},
		"surely undone": {surely{errors.New("no")}, false},
	}
	type op struct {
		do   func(s *stock.Slotted, ctx context.Context, db *sqldb.DB) error
		want []int64 // the slots after it, sorted; of a take from one, whichever
	}
	before := []int64{4, 4, 4, 4}
	ops := map[string]op{
		"take": {func(s *stock.Slotted, ctx context.Context, db *sqldb.DB) error { return s.Take(ctx, db, 10001, 3) }, []int64{1, 4, 4, 4}},
		"put":  {func(s *stock.Slotted, ctx context.Context, db *sqldb.DB) error { return s.Put(ctx, db, 10001, 3) }, []int64{4, 4, 4, 7}},
		"take from all": {
			func(s *stock.Slotted, ctx context.Context, db *sqldb.DB) error { return s.Take(ctx, db, 10001, 8) },
			[]int64{2, 2, 2, 2},
		},
		"refused again": {func(s *stock.Slotted, ctx context.Context, db *sqldb.DB) error {
			_ = s.Take(context.WithValue(ctx, frontKey{}, true), db, 10001, 17)
			return s.Take(ctx, db, 10001, 17)
		}, nil},
		"refused": {func(s *stock.Slotted, ctx context.Context, db *sqldb.DB) error { return s.Take(ctx, db, 10001, 17) }, nil},
		"split": {
			func(s *stock.Slotted, ctx context.Context, db *sqldb.DB) error { return s.Split(ctx, db, 10001, 8) },
			[]int64{2, 2, 2, 2, 2, 2, 2, 2},
		},
		"merge": {func(s *stock.Slotted, ctx context.Context, db *sqldb.DB) error { return s.Merge(ctx, db, 10001) }, []int64{16}},
	}
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		makeSlots(t, db)
		breaking, b := breakableDB(db.DB)
		for name, fault := range faults {
			for what, o := range ops {
				reached := 0
				for at := 0; ; at++ {
					setSlots(t, db, before...)
					s := slotted(t, breaking)
					b.arm(at, fault.after, fault.err)
					err := o.do(s, t.Context(), breaking)
					call := b.disarm()
					counts, _ := slots(t, db)
					slices.Sort(counts)
					done, undone := slices.Equal(counts, o.want), slices.Equal(counts, before)
					switch {
					case o.want == nil:
						if !undone || err == nil || sqldb.Uncertain(err) && strings.HasPrefix(call, "SELECT") {
							t.Errorf("%s: %s, call %d (%.60s): %v, and the slots are %v", name, what, at, call, err, counts)
						}
					case !done && !undone,
						err == nil && !done,
						err != nil && !sqldb.Uncertain(err) && !undone,
						sqldb.Uncertain(err) && (errors.As(err, new(surely)) || strings.HasPrefix(call, "SELECT") || call == "BEGIN"):
						t.Errorf("%s: %s, call %d (%.60s): %v, and the slots are %v", name, what, at, call, err, counts)
					}
					if call == "" {
						if o.want != nil && err != nil {
							t.Errorf("%s: without a fault: %v", what, err)
						}
						break
					}
					reached++
				}
				if reached == 0 {
					t.Errorf("%s: %s: no call has broken", name, what)
				}
			}
		}
	})
}

// In a caller's transaction, an error between two changes that belong together ends it:
// a COMMIT keeps nothing of it.
func TestSlottedHalfChangesEndTheTransaction(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		makeSlots(t, db)
		breaking, b := breakableDB(db.DB)
		s := slotted(t, breaking)
		for name, f := range map[string]func(ctx context.Context, h sqldb.Handle) error{
			"split": func(ctx context.Context, h sqldb.Handle) error { return s.Split(ctx, h, 10001, 8) },
			"merge": func(ctx context.Context, h sqldb.Handle) error { return s.Merge(ctx, h, 10001) },
		} {
			for at := 0; ; at++ {
				setSlots(t, db, 4, 4, 4, 4)
				b.disarm()
				broke := ""
				err := breaking.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
					b.arm(at, false, surely{errors.New("no")})
					_ = f(ctx, tx)
					broke = b.disarm()
					return nil // and so it commits
				})
				counts, _ := slots(t, db)
				if broke == "" {
					if err != nil || slices.Equal(counts, []int64{4, 4, 4, 4}) {
						t.Errorf("%s without a fault: %v, %v", name, err, counts)
					}
					break
				}
				if !slices.Equal(counts, []int64{4, 4, 4, 4}) {
					t.Errorf("%s, call %d (%.60s): %v, %v", name, at, broke, err, counts)
				}
			}
		}
	})
}
