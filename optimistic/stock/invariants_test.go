package stock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// loadTime is how long the tests under load run.
func loadTime(short, long time.Duration) time.Duration {
	if dbtest.Long() {
		return long
	}
	return short
}

const (
	mixRows  = 4
	mixCount = 60 // of each row: little, so that many are refused
)

// mixed makes the tables of a mix: goods, and a ledger of what was taken (and, below
// zero, put) by transactions. What is claimed, held and confirmed stands in the tables
// of sqllock.
func mixed(t testing.TB, db *dbtest.DB) *stock.Stock {
	t.Helper()
	s := shelf(t, db, mixRows)
	db.MustExec(t, fmt.Sprintf("UPDATE goods SET n = %d", mixCount), "CREATE TABLE ledger (n BIGINT NOT NULL)")
	return s
}

// audit says what is wrong with the tables of a mix. It is one statement, so it sees
// one moment: left + sold + claimed + held + confirmed is what there was, always.
func audit(ctx context.Context, db *sqldb.DB) error {
	var left, least, sold, claimed, held, confirmed int64
	sum := func(column, from string) string { return "(SELECT COALESCE(SUM(" + column + "), 0) FROM " + from + ")" }
	lines, reservations := db.Table("reservation_lines"), db.Table("reservations")
	query := "SELECT " + sum("n", "goods") + ", (SELECT MIN(n) FROM goods), " + sum("n", "ledger") + ", " + sum("n", db.Table("claims")) + ", " +
		sum("n", lines+" WHERE held_until IS NOT NULL") + ", " +
		sum("l.n", lines+" l JOIN "+reservations+" r ON r.id = l.reservation WHERE r.state = 'confirmed'")
	if err := db.QueryRow(ctx, query).Scan(&left, &least, &sold, &claimed, &held, &confirmed); err != nil {
		return fmt.Errorf("the audit itself: %w", err)
	}
	if sum := left + sold + claimed + held + confirmed; sum != mixRows*mixCount || least < 0 {
		return fmt.Errorf("%w: left %d (one row %d) + sold %d + claimed %d + held %d + confirmed %d = %d, and there were %d",
			errUnsound, left, least, sold, claimed, held, confirmed, sum, mixRows*mixCount)
	}
	return nil
}

var errUnsound = errors.New("unsound")

// mix does what users do, at random.
type mix struct {
	s     *stock.Stock
	db    *sqldb.DB
	name  string // of the process: claims of two are two
	sales atomic.Int64
	short atomic.Int64
	done  atomic.Int64

	mu    sync.Mutex
	holds []string
}

// hold takes one of the reservations out, or "".
func (m *mix) hold() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.holds) == 0 {
		return ""
	}
	i := rand.IntN(len(m.holds))
	id := m.holds[i]
	if rand.IntN(3) > 0 { // some are settled twice
		m.holds = append(m.holds[:i], m.holds[i+1:]...)
	}
	return id
}

func (m *mix) keep(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holds = append(m.holds, id)
}

func anyLines() []stock.Line {
	lines := make([]stock.Line, 1+rand.IntN(3))
	for i := range lines {
		lines[i] = stock.Line{ID: 1 + rand.IntN(mixRows), N: 1 + rand.Int64N(3)}
	}
	return lines
}

// sell runs f in a transaction together with its line in the ledger.
func (m *mix) sell(ctx context.Context, n int64, f func(ctx context.Context, tx *sqldb.Tx) error) error {
	err := sqldb.Retry(ctx, sqldb.Policy{Attempts: 1000, Elapsed: 5 * time.Minute}, func(ctx context.Context) error {
		return m.db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			if err := f(ctx, tx); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO ledger (n) VALUES (%d)", n))
			return err
		})
	})
	if err == nil {
		m.sales.Add(1)
	}
	return err
}

// on runs f on the DB, or in a transaction.
func (m *mix) on(ctx context.Context, f func(ctx context.Context, h sqldb.Handle) error) error {
	if rand.IntN(2) == 0 {
		return f(ctx, m.db)
	}
	return sqldb.Retry(ctx, sqldb.Policy{Attempts: 1000, Elapsed: 5 * time.Minute}, func(ctx context.Context) error {
		return m.db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error { return f(ctx, tx) })
	})
}

// step does one thing.
func (m *mix) step(ctx context.Context) error {
	switch rand.IntN(9) {
	case 0:
		n := 1 + rand.Int64N(3)
		return m.sell(ctx, n, func(ctx context.Context, tx *sqldb.Tx) error {
			_, err := m.s.Take(ctx, tx, 1+rand.IntN(mixRows), n)
			return err
		})
	case 1:
		n := 1 + rand.Int64N(3)
		return m.sell(ctx, -n, func(ctx context.Context, tx *sqldb.Tx) error {
			_, err := m.s.Put(ctx, tx, 1+rand.IntN(mixRows), n)
			return err
		})
	case 2:
		lines := anyLines()
		var n int64
		for _, l := range lines {
			n += l.N
		}
		return m.sell(ctx, n, func(ctx context.Context, tx *sqldb.Tx) error {
			_, err := m.s.TakeAll(ctx, tx, lines)
			return err
		})
	case 3:
		k := rand.IntN(40) // often one that was made before
		return m.on(ctx, func(ctx context.Context, h sqldb.Handle) error {
			_, err := m.s.TakeOnce(ctx, h, 1+k%mixRows, 1+int64(k%2), fmt.Sprint(m.name, k))
			return err
		})
	case 4, 5:
		ttl := []time.Duration{stock.MinTTL, stock.MinTTL, time.Second, minute}[rand.IntN(4)]
		lines := anyLines()
		var hold stock.Hold
		err := m.on(ctx, func(ctx context.Context, h sqldb.Handle) (err error) {
			hold, err = m.s.Reserve(ctx, h, lines, ttl)
			return err
		})
		if err == nil {
			m.keep(hold.ID)
		}
		return err
	case 6, 7:
		id := m.hold()
		if id == "" {
			return nil
		}
		settle := m.s.Confirm
		if rand.IntN(4) > 0 { // or all would be sold soon
			settle = m.s.Cancel
		}
		return m.on(ctx, func(ctx context.Context, h sqldb.Handle) error { return settle(ctx, h, id) })
	default:
		return m.on(ctx, func(ctx context.Context, h sqldb.Handle) error {
			_, err := m.s.Sweep(ctx, h)
			return err
		})
	}
}

// run does it with some goroutines until the time is over. bad says which errors are
// none that there may be.
func (m *mix) run(ctx context.Context, goroutines int, over func() bool, bad func(err error)) {
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for !over() {
				err := m.step(ctx)
				m.done.Add(1)
				switch {
				case err == nil || errors.Is(err, stock.ErrExpired) || errors.Is(err, stock.ErrConfirmed) || errors.Is(err, stock.ErrCancelled):
				case errors.Is(err, stock.ErrSoldOut):
					m.short.Add(1)
				default:
					bad(err)
				}
			}
		})
	}
	wg.Wait()
}

func never() bool { return false }

// by is over at that time.
func by(until time.Time) func() bool { return func() bool { return !time.Now().Before(until) } }

// enoughBy is over at that time if something was shown by then, else when it is, or a
// minute later.
func enoughBy(until time.Time, enough func() bool) func() bool {
	return func() bool {
		now := time.Now()
		return !now.Before(until) && (enough() || !now.Before(until.Add(time.Minute)))
	}
}

// 64 goroutines do all of it: at every moment the sums are what they were, and in the
// end there are as many lines in the ledger as sales were answered.
func TestInvariants(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		m := &mix{s: mixed(t, db), db: db.DB}
		until := time.Now().Add(loadTime(time.Second, 5*time.Second))
		var audits atomic.Int64
		audited := make(chan struct{})
		stop := make(chan struct{})
		enough := func() bool { return m.short.Load() > 0 && m.sales.Load() > 0 && audits.Load() > 0 }
		go func() {
			defer close(audited)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := audit(context.Background(), db.DB); err != nil {
					t.Error(err)
					return
				}
				audits.Add(1)
			}
		}()
		m.run(context.Background(), goroutines, enoughBy(until, enough), func(err error) { t.Error(err) })
		close(stop)
		<-audited
		if err := audit(t.Context(), db.DB); err != nil {
			t.Error(err)
		}
		var lines int64
		if err := db.QueryRow(t.Context(), "SELECT COUNT(*) FROM ledger").Scan(&lines); err != nil || lines != m.sales.Load() {
			t.Errorf("%d lines in the ledger, %d sales, %v", lines, m.sales.Load(), err)
		}
		if !enough() {
			t.Errorf("%d were refused, %d sold, %d audits: the test has shown nothing", m.short.Load(), m.sales.Load(), audits.Load())
		}
		t.Logf("%d steps, %d sales, %d refused, %d audits", m.done.Load(), m.sales.Load(), m.short.Load(), audits.Load())
	})
}

// The controls: what people write instead does not pass the audit.
func TestNaiveIsUnsound(t *testing.T) {
	ctx := context.Background()
	const sale = "INSERT INTO ledger (n) VALUES (1)"
	unsound := func(t *testing.T, db *dbtest.DB) {
		t.Helper()
		if err := audit(ctx, db.DB); !errors.Is(err, errUnsound) {
			t.Errorf("the audit says %v", err)
		}
	}
	// Two read, and then each writes what it has computed from that.
	t.Run("read-modify-write", func(t *testing.T) {
		dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
			t.Parallel()
			mixed(t, db)
			var left [2]int
			for i := range left {
				if err := db.SQL.QueryRow("SELECT n FROM goods WHERE id = 1").Scan(&left[i]); err != nil {
					t.Fatal(err)
				}
			}
			for i := range left {
				db.MustExec(t, fmt.Sprintf("UPDATE goods SET n = %d WHERE id = 1", left[i]-1), sale)
			}
			unsound(t, db)
		})
	})
	// A deadlock rolls everything back, the line in the ledger too; who repeats only the
	// statement that has failed takes without a sale. (PostgreSQL runs nothing more in
	// such a transaction, and SQLite knows no deadlocks.)
	t.Run("retry inside the transaction", func(t *testing.T) {
		dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
			t.Parallel()
			mixed(t, db)
			exec := func(tx *sql.Tx, queries ...string) {
				t.Helper()
				for _, q := range queries {
					if _, err := tx.Exec(q); err != nil {
						t.Fatal(err)
					}
				}
			}
			naive, err := db.SQL.Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = naive.Rollback() }()
			other, err := db.SQL.Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = other.Rollback() }()
			exec(naive, sale, "UPDATE goods SET n = n WHERE id = 1", "SELECT n FROM goods WHERE id = 1 FOR UPDATE")
			// The other one has done more, and is not the victim.
			exec(other, "CREATE TEMPORARY TABLE IF NOT EXISTS nothing (n INT)")
			for range 50 {
				exec(other, "UPDATE goods SET k = COALESCE(k, 0) + 1 WHERE id > 1")
			}
			waits := make(chan error, 1)
			go func() {
				_, err := other.Exec("UPDATE goods SET k = 1 WHERE id = 1")
				waits <- err
			}()
			awaitWaiting(t, db, 1)
			const take = "UPDATE goods SET n = n - 1 WHERE id = 2 AND n >= 1"
			if _, err := naive.Exec(take); sqldb.ClassOf(err) != sqldb.Deadlock {
				t.Fatalf("no deadlock: %v", err)
			}
			if err := <-waits; err != nil {
				t.Fatal(err)
			}
			if err := other.Commit(); err != nil {
				t.Fatal(err)
			}
			exec(naive, take)
			if err := naive.Commit(); err != nil {
				t.Fatal(err)
			}
			unsound(t, db)
		})
	})
	// INSERT IGNORE cuts a claim that is too long, and makes one of two; the count of ON
	// DUPLICATE KEY UPDATE says of every claim that it is new, where rows that were found
	// are counted.
	for name, insert := range map[string]string{
		"INSERT IGNORE":           "INSERT IGNORE INTO naive (claim) VALUES (?)",
		"ON DUPLICATE KEY, found": "INSERT INTO naive (claim) VALUES (?) ON DUPLICATE KEY UPDATE claim = claim",
	} {
		t.Run(name, func(t *testing.T) {
			dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
				t.Parallel()
				mixed(t, db)
				db.MustExec(t, "CREATE TABLE naive (claim VARCHAR(20) PRIMARY KEY)")
				found := db.OpenSQL(t, func(c *mysql.Config) { c.ClientFoundRows = true })
				claims := []string{"an order, the first 1", "an order, the first 2"}
				if name != "INSERT IGNORE" {
					claims = []string{"order 1", "order 1"}
				}
				orders := map[string]bool{}
				for _, claim := range claims {
					orders[claim] = true
					res, err := found.Exec(insert, claim)
					if err != nil {
						t.Fatal(err)
					}
					if n, _ := res.RowsAffected(); n == 1 {
						db.MustExec(t, "UPDATE goods SET n = n - 1 WHERE id = 1 AND n >= 1")
					}
				}
				for range orders {
					db.MustExec(t, sale)
				}
				unsound(t, db)
			})
		})
	}
}
