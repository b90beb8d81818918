package stock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// What becomes of a COMMIT whose answer is lost.
const (
	applied = "applied"
	lost    = "lost"
	// late: it is carried out only when somebody is already asking what became of it.
	late = "late"
)

// unanswered loses the answer of the first COMMIT.
type unanswered struct {
	sqldb.Driver
	f *fault
}

type fault struct {
	mode string
	mu   sync.Mutex
	done bool          // the COMMIT was lost
	held func()        // carries out the late one
	wait chan struct{} // closed when it was
}

func lose(db *sqldb.DB, mode string) (*sqldb.DB, *fault) {
	f := &fault{mode: mode, wait: make(chan struct{})}
	return db.Wrap(func(d sqldb.Driver) sqldb.Driver { return unanswered{d, f} }), f
}

func (d unanswered) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	d.f.mu.Lock()
	held := d.f.held
	d.f.held = nil
	d.f.mu.Unlock()
	if held != nil { // whoever begins now asks, and has to wait for it
		time.AfterFunc(100*time.Millisecond, held)
	}
	tx, err := d.Driver.Begin(ctx, o)
	return unansweredTx{tx, d.f}, err
}

type unansweredTx struct {
	sqldb.DriverTx
	f *fault
}

func (t unansweredTx) Commit(ctx context.Context) error {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	if t.f.done {
		return t.DriverTx.Commit(ctx)
	}
	t.f.done = true
	switch t.f.mode {
	case applied:
		if err := t.DriverTx.Commit(ctx); err != nil {
			return err
		}
	case lost:
		_ = t.DriverTx.Rollback(ctx)
	case late:
		t.f.held = func() {
			_ = t.DriverTx.Commit(context.Background())
			close(t.f.wait)
		}
	}
	return io.ErrUnexpectedEOF
}

// Rollback is what InTx does after a COMMIT that has failed; the late one is still
// under way then.
func (t unansweredTx) Rollback(ctx context.Context) error {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	if t.f.done && t.f.mode == late && t.f.held != nil {
		return nil
	}
	return t.DriverTx.Rollback(ctx)
}

// The unknown outcome of each is settled by the reservation's id.
func TestReserveUnknownOutcome(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := shelf(t, db, 1)
		left := int64(100)
		for _, mode := range []string{applied, lost, late} {
			wait := func(f *fault) {
				if mode == late {
					<-f.wait
				}
			}
			handle, f := lose(db.DB, mode)
			hold, err := s.Reserve(t.Context(), handle, []stock.Line{{1, 10}}, minute)
			wait(f)
			switch {
			case mode == lost && (err == nil || sqldb.Uncertain(err) || !strings.Contains(err.Error(), "nothing was reserved")):
				t.Errorf("%s: reserve: %v", mode, err)
			case mode != lost && err != nil:
				t.Errorf("%s: reserve: %v", mode, err)
			case mode != lost:
				left -= 10
				wantHold(t, db, hold, "held 1:10")
			}
			wantCounts(t, db, left)
			hold = reserve(t, s, db.DB, stock.Line{ID: 1, N: 1})
			handle, f = lose(db.DB, mode)
			if err := s.Confirm(t.Context(), handle, hold.ID); err != nil {
				t.Errorf("%s: confirm: %v", mode, err)
			}
			wait(f)
			wantHold(t, db, hold, "confirmed 1:-")
			left--
			hold = reserve(t, s, db.DB, stock.Line{ID: 1, N: 1})
			handle, f = lose(db.DB, mode)
			if err := s.Cancel(t.Context(), handle, hold.ID); err != nil {
				t.Errorf("%s: cancel: %v", mode, err)
			}
			wait(f)
			wantHold(t, db, hold, "cancelled 1:-")
			wantCounts(t, db, left)

			// A sweep for a take may have been applied or not: the take finds out.
			hold = reserve(t, s, db.DB, stock.Line{ID: 1, N: left})
			expire(t, db, hold)
			handle, f = lose(db.DB, mode)
			if _, err := s.Take(t.Context(), handle, 1, 1); err != nil {
				t.Errorf("%s: take: %v", mode, err)
			}
			wait(f)
			left--
			wantCounts(t, db, left)
		}
		var n int
		if err := db.SQL.QueryRow("SELECT count(*) FROM " + db.Table("reservation_lines") + " WHERE held_until IS NOT NULL").Scan(&n); err != nil || n != 2 {
			t.Errorf("%d lines are open, %v; 2 were reserved and left", n, err)
		}
	})
}

// If nobody can tell, it is uncertain.
func TestReserveUncertain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := shelf(t, db, 1)
		hold := reserve(t, s, db.DB, stock.Line{ID: 1, N: 1})
		dead := db.Wrap(func(d sqldb.Driver) sqldb.Driver { return dying{d, &sync.Once{}} })
		for name, f := range map[string]func() error{
			"reserve": func() error { _, err := s.Reserve(t.Context(), dead, []stock.Line{{1, 1}}, minute); return err },
			"confirm": func() error { return s.Confirm(t.Context(), dead, hold.ID) },
		} {
			dead = db.Wrap(func(d sqldb.Driver) sqldb.Driver { return dying{d, &sync.Once{}} })
			if err := f(); !sqldb.Uncertain(err) || sqldb.Retryable(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// dying is a database that is gone after the first COMMIT.
type dying struct {
	sqldb.Driver
	once *sync.Once
}

func (d dying) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	first := false
	d.once.Do(func() { first = true })
	if !first {
		return nil, fmt.Errorf("dial: %w", errors.New("connection refused"))
	}
	tx, err := d.Driver.Begin(ctx, o)
	return unansweredTx{tx, &fault{mode: applied}}, err
}
