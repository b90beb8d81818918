package stock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// frontKey marks the ctx of a caller that meets no fault.
type frontKey struct{}

// breaks makes one call to the database break, the one with the number at: before it
// is applied, or, with after, behind it.
type breaks struct {
	mu    sync.Mutex
	armed bool
	at, n int
	after bool
	late  bool // the rows come, and break at their end
	lasts bool // and all calls behind it do
	only  string
	err   error
	what  string // the first call that broke
}

func (b *breaks) arm(at int, after bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed, b.at, b.n, b.after, b.err, b.what = true, at, 0, after, err, ""
}

// disarm tells which call has broken, "" if none was reached.
func (b *breaks) disarm() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed = false
	return b.what
}

// here says if this call breaks.
func (b *breaks) here(ctx context.Context, what string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.armed || ctx.Value(frontKey{}) != nil || b.only != "" && what != b.only {
		return false
	}
	b.n++
	if b.n-1 < b.at || b.n-1 > b.at && !b.lasts {
		return false
	}
	if b.what == "" {
		b.what = what
	}
	return true
}

// brokenRows break at their end.
type brokenRows struct {
	sqldb.DriverRows
	err error
}

func (r brokenRows) Err() error { return r.err }

type breakable struct {
	sqldb.Driver
	b *breaks
}

type breakableConn struct {
	sqldb.DriverConn
	b *breaks
}

type breakableTx struct {
	sqldb.DriverTx
	b *breaks
}

func breakableDB(db *sqldb.DB) (*sqldb.DB, *breaks) {
	b := &breaks{}
	return db.Wrap(func(d sqldb.Driver) sqldb.Driver { return breakable{d, b} }), b
}

func (b *breaks) exec(ctx context.Context, q sqldb.Querier, query string, args []any) (sqldb.Result, error) {
	if !b.here(ctx, query) {
		return q.Exec(ctx, query, args)
	}
	if b.after {
		_, _ = q.Exec(ctx, query, args)
	}
	return sqldb.Result{}, b.err
}

func (b *breaks) query(ctx context.Context, q sqldb.Querier, query string, args []any) (sqldb.DriverRows, error) {
	if !b.here(ctx, query) {
		return q.Query(ctx, query, args)
	}
	if b.after {
		if rows, err := q.Query(ctx, query, args); err == nil {
			if b.late {
				return brokenRows{rows, b.err}, nil
			}
			for rows.Next() {
				_, _ = rows.Values()
			}
			_ = rows.Close()
		}
	}
	return nil, b.err
}

func (b *breaks) tx(tx sqldb.DriverTx, err error) (sqldb.DriverTx, error) {
	if err != nil {
		return nil, err
	}
	return breakableTx{tx, b}, nil
}

func (d breakable) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	return d.b.exec(ctx, d.Driver, query, args)
}

func (d breakable) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	return d.b.query(ctx, d.Driver, query, args)
}

func (d breakable) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	if d.b.here(ctx, "BEGIN") {
		return nil, d.b.err
	}
	return d.b.tx(d.Driver.Begin(ctx, o))
}

func (d breakable) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	if d.b.here(ctx, "a connection") {
		return nil, d.b.err
	}
	c, err := d.Driver.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return breakableConn{c, d.b}, nil
}

func (c breakableConn) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	return c.b.exec(ctx, c.DriverConn, query, args)
}

func (c breakableConn) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	return c.b.query(ctx, c.DriverConn, query, args)
}

func (c breakableConn) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	if c.b.here(ctx, "BEGIN") {
		return nil, c.b.err
	}
	return c.b.tx(c.DriverConn.Begin(ctx, o))
}

func (x breakableTx) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	return x.b.exec(ctx, x.DriverTx, query, args)
}

func (x breakableTx) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	return x.b.query(ctx, x.DriverTx, query, args)
}

func (x breakableTx) Rollback(ctx context.Context) error {
	err := x.DriverTx.Rollback(ctx)
	if x.b.here(ctx, "ROLLBACK") {
		return x.b.err
	}
	return err
}

func (x breakableTx) Commit(ctx context.Context) error {
	if !x.b.here(ctx, "COMMIT") {
		return x.DriverTx.Commit(ctx)
	}
	end := x.DriverTx.Rollback
	if x.b.after {
		end = x.DriverTx.Commit
	}
	if err := end(ctx); err != nil {
		return err
	}
	return x.b.err
}

// surely is an error behind which nothing was applied.
type surely struct{ error }

func (surely) NotApplied() bool { return true }

// Whatever call of a batch breaks, and whether it was applied or not, everybody is told
// the truth: nil was taken, once; an error was not; Uncertain, nobody knows. Who takes
// for a claim is told nil, for the claims say so.
func TestCombineFaults(t *testing.T) {
	faults := map[string]struct {
		err   error
		after bool
		late  bool
	}{
		"lost before":        {io.ErrUnexpectedEOF, false, false},
		"lost behind":        {io.ErrUnexpectedEOF, true, false},
		"lost with the rows": {io.ErrUnexpectedEOF, true, true},
		"surely undone":      {surely{errors.New("no")}, false, false},
	}
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "0")
		breaking, b := breakableDB(db.DB)
		handle, g := newGate(breaking)
		c := combine(t, s, handle)
		ctx := t.Context()
		run := 0
		for name, fault := range faults {
			for _, op := range []string{"take", "once", "put", "short"} {
				reached := 0
				for at := 0; ; at++ {
					run++
					asks := make([]*ask, 5)
					for i := range asks {
						asks[i] = &ask{op: op, n: int64(i + 1), claim: fmt.Sprint(run, " ", i)}
					}
					left := int64(100)
					if op == "once" {
						asks[4].n, asks[4].claim = asks[2].n, asks[2].claim // twice the same
					}
					if op == "short" { // little is left, for takes with claims
						left = 6
						for _, a := range asks {
							a.op = "once"
						}
					}
					db.MustExec(t, fmt.Sprintf("UPDATE t_bonus SET left_count = %d, version = 0", left-1))
					b.arm(at, fault.after, fault.err)
					b.late = fault.late
					together(t, c, g, 10001, asks)
					what := b.disarm()
					check(t, db, fmt.Sprintf("%s: %s, call %d (%.60s)", name, op, at, what), op == "put", left, asks)
					if what == "" {
						break
					}
					reached++
					if what == "COMMIT" || fault.err != io.ErrUnexpectedEOF {
						for _, a := range asks { // the claims, or each alone, settle it
							if a.err != nil && !errors.Is(a.err, stock.ErrSoldOut) && (a.op == "once" || fault.err != io.ErrUnexpectedEOF) {
								t.Errorf("%s: %s, call %d (%.60s): %v", name, op, at, what, a.err)
							}
						}
					}
				}
				if reached == 0 {
					t.Errorf("%s: %s: no call has broken", name, op)
				}
			}
		}
		// And the next ones find all as it should be.
		if _, err := c.Put(ctx, 10001, 1); err != nil {
			t.Error(err)
		}
	})
}

// check compares what the asks were told with what the database has. left is what there
// was before them.
func check(t *testing.T, db *dbtest.DB, name string, puts bool, left int64, asks []*ask) {
	t.Helper()
	now, version := row(t, db)
	gone := left - now
	if puts {
		gone = -gone
	}
	var sure, open, served, doubtful int64
	seen := map[string]bool{}
	fresh, answered := map[string]int{}, map[string]bool{}
	for _, a := range asks {
		if a.op == "once" && a.err == nil {
			answered[a.claim] = true
			if a.receipt.Fresh {
				fresh[a.claim]++
			}
		}
	}
	for claim := range answered {
		if fresh[claim] != 1 {
			t.Errorf("%s: of the receipts of %q, %d are fresh", name, claim, fresh[claim])
		}
	}
	for _, a := range asks {
		made := false
		if a.op == "once" {
			var n int64
			if err := db.QueryRow(t.Context(), "SELECT COUNT(*) FROM "+db.Table("claims")+" WHERE "+claimIs(db, a.claim)).Scan(&n); err != nil {
				t.Fatal(err)
			}
			made = n > 0
		}
		switch {
		case a.err == nil:
			if a.op == "once" && !made {
				t.Errorf("%s: the claim %q was told to be made, and is not there", name, a.claim)
			}
			if a.op == "once" && seen[a.claim] {
				continue
			}
			seen[a.claim] = true
			sure += a.n
			served++
		case sqldb.Uncertain(a.err):
			open += a.n
			doubtful++
		case made && !seen[a.claim]:
			t.Errorf("%s: the claim %q is there, and was told %v", name, a.claim, a.err)
		}
	}
	if gone < sure || gone > sure+open {
		t.Errorf("%s: %d have gone, and %d were told so, %d perhaps", name, gone, sure, open)
	}
	if v := version - 1; v < served || v > served+doubtful {
		t.Errorf("%s: the version went up by %d, and %d were served, %d perhaps", name, v, served, doubtful)
	}
	if open == 0 && sure > 0 { // who was served alone is not in the order
		last := int64(-1)
		for _, a := range asks {
			if a.err == nil && (last < 0 || a.left < last) {
				last = a.left
			}
		}
		if !puts && last != now {
			t.Errorf("%s: the least that was told to be left is %d, and it is %d", name, last, now)
		}
	}
}

func claimIs(db *dbtest.DB, claim string) string {
	if db.Kind().InnoDB() {
		return fmt.Sprintf("claim = X'%x'", claim)
	}
	return "claim = '" + claim + "'"
}

// A member that the database does not take does not fail the others.
func TestCombineBadMember(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "99")
		handle, g := newGate(db.DB)
		var alone int
		c := combine(t, s, handle, stock.TraceCombine(&stock.CombineTrace{Batch: func(b stock.Batch) { alone += b.Alone }}))
		table := db.Table("claims")
		if db.Kind() == sqldb.SQLite {
			db.MustExec(t, "CREATE TRIGGER no_bad BEFORE INSERT ON "+table+" WHEN NEW.claim = 'bad' BEGIN SELECT RAISE(ABORT, 'bad'); END")
		} else {
			db.MustExec(t, "ALTER TABLE "+table+" ADD CONSTRAINT no_bad CHECK (claim <> 'bad')")
		}
		asks := []*ask{{op: "once", n: 1, claim: "a"}, {op: "once", n: 1, claim: "bad"}, {op: "once", n: 1, claim: "c"}}
		together(t, c, g, 10001, asks)
		if asks[0].err != nil || asks[1].err == nil || asks[2].err != nil || alone == 0 {
			t.Errorf("%v, %v, %v; %d tried alone", asks[0].err, asks[1].err, asks[2].err, alone)
		}
		if left, _ := row(t, db); left != 98 {
			t.Errorf("%d left", left)
		}
		// The sum of puts does not fit into the column, and most of them do.
		if db.Kind() == sqldb.SQLite {
			db.MustExec(t, "UPDATE t_bonus SET left_count = 9223372036854775807 - 100")
		} else {
			db.MustExec(t, "UPDATE t_bonus SET left_count = 2147483647 - 100")
		}
		asks = []*ask{{op: "put", n: 10}, {op: "put", n: 1000}, {op: "put", n: 20}}
		together(t, c, g, 10001, asks)
		if asks[0].err != nil || !errors.Is(asks[1].err, stock.ErrOverflow) || asks[2].err != nil {
			t.Errorf("%v, %v, %v", asks[0].err, asks[1].err, asks[2].err)
		}
		// A row that is not there is none for everybody.
		asks = []*ask{{op: "take", n: 10}, {op: "take", n: 1}, {op: "once", n: 1, claim: "x"}, {op: "once", n: 1, claim: "y"}}
		g.shut()
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = c.Take(context.Background(), 404, 1) })
		<-g.at
		for i, a := range asks {
			wg.Go(func() { a.do(c, 404) })
			await(t, c, i+1)
		}
		g.lift()
		wg.Wait()
		for _, a := range asks {
			if !errors.Is(a.err, stock.ErrNotFound) {
				t.Errorf("%v", a.err)
			}
		}
	})
}
