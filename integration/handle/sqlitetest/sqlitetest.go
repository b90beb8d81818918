// Package sqlitetest is what a driver for SQLite has to bring for sqlitedb. Each runs
// in a binary of its own, or with modernc's, since mattn's and ncruces' both take the
// name "sqlite3".
package sqlitetest

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
)

// Settings are what the tests want of a connection, beside WAL and _txlock=immediate.
type Settings struct {
	// Busy is the busy_timeout.
	Busy time.Duration
	// Pages is max_page_count, if not 0.
	Pages int
}

// Open opens a pool on a file.
type Open func(path string, s Settings) (*sql.DB, error)

// Run runs all tests.
func Run(t *testing.T, open Open) {
	for name, test := range map[string]func(*testing.T, Open){
		"classes": classes, "lock timeout": lockTimeout, "change behind a lock": changeBehindLock,
		"cancelled at random": cancelledAtRandom, "interrupt": interrupted, "full disk": fullDisk,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open)
		})
	}
}

const start = 1_000_000

var decrement = sqldb.Change{Op: "decrement", Query: "UPDATE counter SET n = n - 1 WHERE id = 1"}

type database struct {
	*sqldb.DB
	pool *sql.DB
	path string
}

func fresh(t *testing.T, open Open, s Settings) database {
	t.Helper()
	d := another(t, open, filepath.Join(t.TempDir(), "test.db"), s)
	for _, q := range []string{"CREATE TABLE counter (id INTEGER PRIMARY KEY, n INTEGER NOT NULL CHECK (n >= 0))", "CREATE TABLE t (s TEXT)"} {
		if _, err := d.Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Exec(t.Context(), "INSERT INTO counter VALUES (1, ?)", start); err != nil {
		t.Fatal(err)
	}
	return d
}

func another(t *testing.T, open Open, path string, s Settings) database {
	t.Helper()
	pool, err := open(path, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for end := time.Now().Add(2 * sqldb.Bound); pool.Stats().InUse != 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Error("connections were left out of the pool")
				break
			}
		}
		_ = pool.Close()
	})
	db, err := sqlitedb.New(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return database{db, pool, path}
}

// left reads the counter, behind everything that is still under way.
func (d database) left(t *testing.T) (n int64) {
	t.Helper()
	err := d.InTx(context.Background(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
		return tx.QueryRow(ctx, "SELECT n FROM counter WHERE id = 1").Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// hold takes the write lock until the function that it returns is called.
func (d database) hold(t *testing.T) (release func()) {
	t.Helper()
	conn, err := d.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	// Where many hold in turns, it may itself find the database busy.
	for {
		_, err = conn.Exec(context.Background(), "BEGIN IMMEDIATE")
		if sqldb.ClassOf(err) != sqldb.LockTimeout {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		if _, err := conn.Exec(context.Background(), "ROLLBACK"); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	})
}

// What the driver answers has its class, inside of a transaction and outside.
func classes(t *testing.T, open Open) {
	d := fresh(t, open, Settings{Busy: 5 * time.Second})
	for query, want := range map[string]sqldb.Class{
		"INSERT INTO counter VALUES (1, 1)":    sqldb.Duplicate,
		"INSERT INTO counter VALUES (2, -1)":   sqldb.Constraint,
		"INSERT INTO counter VALUES (2, NULL)": sqldb.Constraint,
		"DELETE FROM missing":                  sqldb.NoTable,
		"UPDATE counter SET missing = 1":       sqldb.NoColumn,
		"SELEC":                                sqldb.Unknown,
	} {
		_, err := d.Exec(t.Context(), query)
		_, changeErr := d.Change(t.Context(), sqldb.Change{Op: "test", Query: query})
		txErr := d.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			_, err := tx.Exec(ctx, query)
			return err
		})
		for _, err := range []error{err, changeErr, txErr} {
			if err == nil || sqldb.ClassOf(err) != want || sqldb.Uncertain(err) {
				t.Errorf("%s: %v, want %v: %v", query, sqldb.ClassOf(err), want, err)
			}
		}
	}
	// A snapshot that is too old to write on.
	conn, err := d.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Exec(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	if err := conn.QueryRow(t.Context(), "SELECT n FROM counter").Scan(new(int64)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Change(t.Context(), decrement); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), decrement.Query); sqldb.ClassOf(err) != sqldb.Serialization {
		t.Errorf("an old snapshot: %v", err)
	}
	if _, err := conn.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Error(err)
	}
}

// A busy database is a LockTimeout that can be tried again.
func lockTimeout(t *testing.T, open Open) {
	d := fresh(t, open, Settings{Busy: 20 * time.Millisecond})
	release := d.hold(t)
	defer release()
	err := d.InTx(t.Context(), sqldb.TxOptions{}, func(context.Context, *sqldb.Tx) error { return nil })
	if sqldb.ClassOf(err) != sqldb.LockTimeout || !sqldb.Retryable(err) {
		t.Errorf("InTx: %v", err)
	}
	if _, err := d.Exec(t.Context(), decrement.Query); sqldb.ClassOf(err) != sqldb.LockTimeout || sqldb.Uncertain(err) {
		t.Errorf("Exec: %v", err)
	}
	release()
	if got := d.left(t); got != start {
		t.Errorf("the counter is %d", got)
	}
}

// A Change that waits behind the write lock returns soon after its ctx has ended, while
// the lock is held, and nothing comes after it; whatever BEGIN makes of its ctx.
func changeBehindLock(t *testing.T, open Open) {
	d := fresh(t, open, Settings{Busy: 5 * time.Second})
	release := d.hold(t)
	defer release()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		begun := time.Now()
		_, err := d.Change(ctx, decrement)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || sqldb.Uncertain(err) {
			t.Errorf("the answer is %v", err)
		}
		if took := time.Since(begun); took > sqldb.Bound/2 {
			t.Errorf("it took %v", took)
		}
	}
	release()
	if got := d.left(t); got != start {
		t.Errorf("the counter is %d: a cancelled change was applied", got)
	}
	if _, err := d.Change(t.Context(), decrement); err != nil || d.left(t) != start-1 {
		t.Errorf("afterwards: %v, %d", err, d.left(t))
	}
}

// A ctx that ends at any moment leaves no change behind an error.
func cancelledAtRandom(t *testing.T, open Open) {
	d := fresh(t, open, Settings{Busy: 5 * time.Second})
	stop := make(chan struct{})
	var holder, workers sync.WaitGroup
	holder.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(rand.N(2 * time.Millisecond)):
			}
			release := d.hold(t)
			time.Sleep(rand.N(4 * time.Millisecond)) // the load, not a wait
			release()
		}
	})
	var applied atomic.Int64
	for range 4 {
		workers.Go(func() {
			for i := range 30 {
				ctx, cancel := context.WithCancel(context.Background())
				end := rand.N(6 * time.Millisecond)
				if i%4 == 0 {
					end = 50*time.Millisecond + rand.N(300*time.Millisecond)
				}
				timer := time.AfterFunc(end, cancel)
				_, err := d.Change(ctx, decrement)
				switch {
				case err == nil:
					applied.Add(1)
				case sqldb.Uncertain(err) || !errors.Is(err, context.Canceled):
					t.Errorf("neither applied nor cancelled: %v", err)
				}
				timer.Stop()
				cancel()
			}
		})
	}
	workers.Wait()
	close(stop)
	holder.Wait()
	if got, want := d.left(t), start-applied.Load(); got != want || applied.Load() == 0 {
		t.Errorf("the counter is %d; with %d applied it has to be %d", got, applied.Load(), want)
	}
}

// forever is a change that does not end.
const forever = "INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"

// A change that is interrupted in the middle ends the transaction, and its object with
// it; what the driver says to the ROLLBACK of a transaction that is gone is no error.
func interrupted(t *testing.T, open Open) {
	d := fresh(t, open, Settings{Busy: 5 * time.Second})
	work := func(ctx context.Context, tx *sqldb.Tx) {
		t.Helper()
		if _, err := tx.Exec(ctx, decrement.Query); err != nil {
			t.Error(err)
		}
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		_, err := tx.Exec(short, forever)
		if err == nil || strings.Contains(err.Error(), "ending the transaction") || sqldb.Uncertain(err) {
			t.Errorf("the interrupt: %v", err)
		}
		if _, err := tx.Exec(ctx, decrement.Query); err == nil || tx.Err() == nil {
			t.Error("the transaction can be used")
		}
	}
	err := d.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
		work(ctx, tx)
		return nil // swallowed
	})
	if err == nil || sqldb.Uncertain(err) {
		t.Errorf("InTx: %v", err)
	}
	raw, err := d.pool.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	work(t.Context(), d.Tx(raw))
	if _, err := raw.Exec(decrement.Query); !errors.Is(err, sql.ErrTxDone) {
		t.Errorf("through the *sql.Tx: %v", err)
	}
	if got := d.left(t); got != start {
		t.Errorf("the counter is %d", got)
	}
	if n := d.pool.Stats().OpenConnections; n == 0 {
		t.Error("every connection was thrown away")
	}
}

// So does a full disk.
func fullDisk(t *testing.T, open Open) {
	d := fresh(t, open, Settings{Busy: 5 * time.Second})
	small := another(t, open, d.path, Settings{Busy: 5 * time.Second, Pages: 40})
	big := strings.Repeat("x", 1<<20)
	err := small.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
		if _, err := tx.Exec(ctx, decrement.Query); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO t VALUES (?)", big); sqldb.ClassOf(err) != sqldb.Exhausted {
			t.Errorf("the disk is not full: %v", err)
		}
		if _, err := tx.Exec(ctx, decrement.Query); err == nil {
			t.Error("the transaction can be used")
		}
		return nil // swallowed
	})
	if sqldb.ClassOf(err) != sqldb.Exhausted || sqldb.Uncertain(err) {
		t.Errorf("InTx: %v", err)
	}
	c := sqldb.Change{Op: "fill", Query: "INSERT INTO t VALUES (?)", Args: []any{big}}
	if _, err := small.Change(t.Context(), c); sqldb.ClassOf(err) != sqldb.Exhausted || sqldb.Uncertain(err) {
		t.Errorf("Change: %v", err)
	}
	if got := d.left(t); got != start {
		t.Errorf("the counter is %d", got)
	}
}
