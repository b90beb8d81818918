package sqllock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// nasty are names that some database, collation, driver or format takes for one
// another, or for something else.
var nasty = []string{
	"a", "A", " ", "  ", "a ", " a", "a\t", "a\n", "a\r\n", "\n", "\x01", "a\x01", "\x7f", "\u00a0", "\ufeff", "\ufeffa", "\u200b", "\u2028",
	"job", "JOB", "Job", "jób", "jo\u0301b", "\u006a\u006f\u0062\u0301", "é", "e\u0301", "ß", "ss", "ſ", "İ", "i", "ı", "I", "Å", "\u212b", "A\u030a",
	"😀", "😁", "\U0010ffff", "\ufffd", "ﬀ", "ff", "１", "1", "01", "1.0", "1e0", "0x61", "null", "NULL", "true",
	"%", "_", "a%", "a_", "%s", "$1", "?", "??", ":name", "{name}", "${table.locks}", "'", "''", "\"", "`", "\\", "\\\\", "\\'", "a'b", "a\\", "--", "/*", "*/", "#", ";",
	"'; DROP TABLE sqllock_locks; --", "[]", "{}", "\\u0001", "\\x61", "<&>",
	strings.Repeat("x", 255), strings.Repeat("x", 254), strings.Repeat("x", 254) + "X", strings.Repeat("😀", 63) + "abc", strings.Repeat("\x01", 255), strings.Repeat("é", 127) + "a",
}

// Unequal bytes are unequal locks: all of them can be held at once, are renewed by
// the statement that carries them all, found by List, and released each by itself.
func TestNames(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		var stats lock.Stats
		l := table(t, db, lock.TTL(time.Minute))
		other := locker(t, db.Another(t).DB)
		held := map[string]*lock.Lock{}
		quick := locker(t, db.DB, lock.TTL(5*time.Second), lock.WithTrace(stats.Trace()))
		for _, name := range nasty {
			if held[name] != nil {
				t.Fatalf("%q is there twice", name)
			}
			held[name] = must(t, quick, name, lock.Try())
		}
		for _, name := range nasty {
			if e := refused(t, other, name); e.Token != held[name].Token() || e.Name != name {
				t.Errorf("%q is held with token %d, and a try says %v", name, held[name].Token(), e)
			}
		}
		all, err := l.List(t.Context())
		if err != nil || len(all) != len(nasty) {
			t.Errorf("%d of %d are listed, %v", len(all), len(nasty), err)
		}
		for i, k := range all {
			if k.Owner != held[k.Name].Owner() || k.Token != held[k.Name].Token() {
				t.Errorf("%q is listed as %+v", k.Name, k)
			}
			if i > 0 && all[i-1].Name >= k.Name {
				t.Errorf("%q stands before %q", all[i-1].Name, k.Name)
			}
		}
		eventually(t, "all were renewed", func() bool { return stats.Renewed.Load() >= int64(2*len(nasty)) })
		if stats.Lost.Load() != 0 || stats.RenewFailed.Load() != 0 {
			t.Errorf("%d were lost, %d renewals failed", stats.Lost.Load(), stats.RenewFailed.Load())
		}
		for i, name := range nasty {
			if err := inTx(t, db, func(tx *sqldb.Tx) error { return held[name].Guard(t.Context(), tx) }); err != nil {
				t.Errorf("guard of %q: %v", name, err)
			}
			if i%2 == 0 {
				release(t, held[name])
			} else if err := inTx(t, db, func(tx *sqldb.Tx) error { return held[name].ReleaseIn(t.Context(), tx) }); err != nil {
				t.Errorf("ReleaseIn of %q: %v", name, err)
			}
			if all, err := l.List(t.Context()); err != nil || len(all) != len(nasty)-i-1 {
				t.Fatalf("after the release of %q %d are held, %v", name, len(all), err)
			}
			if err := inTx(t, db, func(tx *sqldb.Tx) error { return sqllock.AcquireTx(t.Context(), tx, name) }); err != nil {
				t.Errorf("AcquireTx of %q: %v", name, err)
			}
		}
	})
}

// What is no name is refused before any SQL.
func TestInvalidNames(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		table(t, db)
		counting, c := dbtest.Count(db.DB)
		l := locker(t, counting)
		raw, _ := openTx(t, db, 0)
		defer func() { _ = raw.Rollback() }()
		c.Take()
		for _, name := range []string{"", "\x00", "a\x00", "\xff", "a\xc3", "\xed\xa0\x80", strings.Repeat("x", 256), strings.Repeat("😀", 64)} {
			_, err := l.Acquire(t.Context(), name)
			_, attached := l.Attach(t.Context(), name, "owner", 1)
			for what, err := range map[string]error{
				"Acquire": err, "Attach": attached, "ForceRelease": l.ForceRelease(t.Context(), name, 1),
				"AcquireTx": sqllock.AcquireTx(t.Context(), counting.Tx(raw), name),
			} {
				if !errors.Is(err, lock.ErrInvalid) {
					t.Errorf("%s of %.20q: %v", what, name, err)
				}
			}
		}
		if q := c.Take(); len(q) != 0 {
			t.Errorf("statements were run: %q", q)
		}
	})
}

// The longest label that is allowed fits its column, whatever it is made of.
func TestLongLabels(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := table(t, db)
		for _, label := range []string{strings.Repeat("\x01", 200), strings.Repeat("<", 200), strings.Repeat("😀", 50), strings.Repeat("\"", 200)} {
			k := must(t, l, "job", lock.Label(label))
			e := refused(t, l, "job")
			if !strings.HasPrefix(label, e.Holder.Label) || len(e.Holder.Label) < 100 || e.Holder.PID == 0 {
				t.Errorf("%q became %+v", label, e.Holder)
			}
			release(t, k)
		}
	})
}
