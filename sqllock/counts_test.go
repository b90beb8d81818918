package sqllock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
)

// What each operation costs in statements.
func TestStatementCounts(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		table(t, db)
		counting, c := dbtest.Count(db.DB)
		a, b := locker(t, counting), locker(t, db.DB)
		took := func(what string, most int) {
			t.Helper()
			if q := c.Take(); len(q) > most {
				t.Errorf("%s: %d statements, at most %d are allowed: %s", what, len(q), most, strings.Join(q, "\n"))
			}
		}
		look := 0
		if db.Kind() == sqldb.SQLite {
			look = 1 // it looks before it takes the write lock of the file
		}
		c.Take()
		release(t, must(t, a, "job"))
		c.Take()
		for range 5 {
			k := must(t, a, "job")
			took("acquire", 1+look)
			release(t, k)
			took("release", 1)
		}
		k := must(t, b, "job")
		for range 5 {
			refused(t, a, "job")
			took("a try that fails", 2)
		}
		release(t, k)
		k = must(t, a, "job", lock.NoRenew())
		c.Take()
		if err := k.Extend(t.Context(), time.Minute); err != nil {
			t.Error(err)
		}
		took("extend", 1)
		err := inTx(t, db, func(tx *sqldb.Tx) error { return k.Guard(t.Context(), tx) })
		if err != nil {
			t.Error(err)
		}
		release(t, k)
	})
}

// A try that fails writes nothing.
func TestFailingTryWritesNothing(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := table(t, db)
		k := must(t, l, "job", lock.NoRenew())
		image := func() (s string) {
			t.Helper()
			columns := "name, slot, owner, token, acquired_at, expires_at, hold_until, freed_at, waited_since, holder"
			if db.Kind() == sqldb.Postgres {
				columns += ", xmin, xmax, ctid"
			}
			rows, err := db.SQL.Query("SELECT " + columns + " FROM " + db.Table("locks"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() {
				values := make([]any, strings.Count(columns, ",")+1)
				ptrs := make([]any, len(values))
				for i := range values {
					ptrs[i] = &values[i]
				}
				if err := rows.Scan(ptrs...); err != nil {
					t.Fatal(err)
				}
				s += fmt.Sprintln(values...)
			}
			return s
		}
		wal := func() (n int64) {
			t.Helper()
			if err := db.QueryRow(t.Context(), "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		before := image()
		for range 50 {
			refused(t, l, "job")
		}
		if after := image(); after != before {
			t.Errorf("the row was\n%s\nand is\n%s", before, after)
		}
		if db.Kind() == sqldb.Postgres {
			// Others write to this server as well: a quiet moment is enough.
			least := int64(1)
			for try := 0; try < 200 && least > 0; try++ {
				at := wal()
				for range 50 {
					refused(t, l, "job")
				}
				least = min(least, wal()-at)
				if least > 0 {
					time.Sleep(10 * time.Millisecond)
				}
			}
			if least > 0 {
				t.Error("50 tries that fail always wrote to the WAL")
			}
		}
		release(t, k)
	})
}

// All locks of a Locker are renewed by one statement for each interval.
func TestRenewManyByOneStatement(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		const n = 1000
		const ttl = 6 * time.Second // long enough for SQLite, where renewals wait beside a thousand acquisitions
		if err := migrations.Up(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
		counting, c := dbtest.Count(db.DB)
		var stats lock.Stats
		l := locker(t, counting, lock.TTL(ttl), lock.WithTrace(stats.Trace()))
		var all []*lock.Lock
		kinds := db.Table("locks")
		seed := make([]string, 0, n)
		for i := range n {
			seed = append(seed, fmt.Sprintf("('job %d')", i))
		}
		db.MustExec(t, "INSERT INTO "+kinds+" (name) VALUES "+strings.Join(seed, ", "))
		for i := range n {
			all = append(all, must(t, l, fmt.Sprintf("job %d", i)))
		}
		begun := stats.Renewed.Load()
		eventually(t, "all were renewed", func() bool { return stats.Renewed.Load() >= begun+2*n })
		c.Take()
		// Until here the renewals have had to share SQLite's write lock with a thousand
		// acquisitions.
		from, failed := stats.Renewed.Load(), stats.RenewFailed.Load()
		at := time.Now()
		eventually(t, "all were renewed four more times", func() bool { return stats.Renewed.Load() >= from+4*n })
		intervals := int(time.Since(at)/(ttl/3)) + 1
		if q := c.Take(); len(q) > intervals+2 {
			t.Errorf("%d statements in %d intervals", len(q), intervals)
		}
		for _, k := range all {
			if err := k.Err(); err != nil {
				t.Fatal(err)
			}
		}
		if lost, failed := stats.Lost.Load(), stats.RenewFailed.Load()-failed; lost != 0 || failed != 0 {
			t.Errorf("%d lost, %d renewals failed", lost, failed)
		}
		for _, k := range all { // Close has 5 s for all of them
			release(t, k)
		}
	})
}

// inTx runs fn in a transaction that is committed.
func inTx(t testing.TB, db *dbtest.DB, fn func(tx *sqldb.Tx) error) error {
	t.Helper()
	raw, tx := openTx(t, db, 0)
	if err := fn(tx); err != nil {
		_ = raw.Rollback()
		return err
	}
	return raw.Commit()
}
