package optimistic_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic"
	"github.com/sqlnative/locks/sqldb"
)

// Version 0 is a version, and what comes back is the version for the next update, in
// one transaction too.
func TestUpdate(t *testing.T) {
	pools(t, func(t *testing.T, db *dbtest.DB) {
		a := article(t, db)
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			v, err := a.Update(t.Context(), h, seven, 0, title, optimistic.If("state", 1), optimistic.If("title", "old"))
			if err != nil || v != 1 {
				t.Fatalf("version %d, %v", v, err)
			}
			// The same values again: no column but the version changes.
			if v, err = a.Update(t.Context(), h, seven, v, title); err != nil || v != 2 {
				t.Fatalf("version %d, %v", v, err)
			}
			if v, err = a.Update(t.Context(), h, seven, v, nil); err != nil || v != 3 {
				t.Fatalf("an empty Set: version %d, %v", v, err)
			}
			if v, err = a.Update(t.Context(), h, seven, v, optimistic.Set{"title": nil, "state": 2}); err != nil || v != 4 {
				t.Fatalf("NULL: version %d, %v", v, err)
			}
			v, err = a.Update(t.Context(), h, seven, v, optimistic.Set{"title": "end"}, optimistic.If("title", nil), optimistic.If("state", 2))
			if err != nil || v != 5 {
				t.Fatalf("version %d, %v", v, err)
			}
		})
		is(t, db, "end", 5)
	})
}

func TestDelete(t *testing.T) {
	pools(t, func(t *testing.T, db *dbtest.DB) {
		a := article(t, db)
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			conflict(t, a.Delete(t.Context(), h, seven, 1), optimistic.Stale)
			conflict(t, a.Delete(t.Context(), h, seven, 0, optimistic.If("state", 2)), optimistic.Condition)
			if err := a.Delete(t.Context(), h, seven, 0, optimistic.If("state", 1)); err != nil {
				t.Fatal(err)
			}
			conflict(t, a.Delete(t.Context(), h, seven, 0), optimistic.Gone)
		})
		var n int
		if err := db.SQL.QueryRow("SELECT COUNT(*) FROM article").Scan(&n); err != nil || n != 0 {
			t.Errorf("%d rows, %v", n, err)
		}
	})
}

// A conflict says which, changes nothing, of the caller's neither, and leaves a
// transaction usable.
func TestConflict(t *testing.T) {
	pools(t, func(t *testing.T, db *dbtest.DB) {
		a := article(t, db)
		db.MustExec(t, "UPDATE article SET version = 5")
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			ctx := t.Context()
			set := optimistic.Set{"title": "lost", "state": 9}
			before := maps.Clone(set)

			v, err := a.Update(ctx, h, seven, 4, set, optimistic.If("state", 3)) // stale comes before condition
			c := conflict(t, err, optimistic.Stale)
			if v != 4 || c.Expected != 4 || c.Current != 5 || c.Table != "article" || len(c.Key) != 1 || c.Key[0] != int64(7) {
				t.Errorf("version %d, %+v", v, c)
			}
			if want := "optimistic: article id 7: stale: version 4 was expected, and it is 5: read it again"; err.Error() != want {
				t.Errorf("%q, want %q", err, want)
			}
			if !sqldb.Retryable(err) || sqldb.Uncertain(err) {
				t.Error("stale can be tried again")
			}

			// Alone, whether the row is further, or was put back.
			_, err = a.Update(ctx, h, seven, 4, set)
			conflict(t, err, optimistic.Stale)
			v, err = a.Update(ctx, h, seven, 6, set)
			if c := conflict(t, err, optimistic.Stale); v != 6 || c.Current != 5 {
				t.Errorf("version %d, %+v", v, c)
			}

			v, err = a.Update(ctx, h, optimistic.Key(8), 5, set)
			c = conflict(t, err, optimistic.Gone)
			if want := "optimistic: article id 8: gone: version 5 was expected, and there is no such row"; v != 5 || c.Current != 0 || err.Error() != want {
				t.Errorf("version %d, %q, want %q", v, err, want)
			}
			if sqldb.Retryable(err) {
				t.Error("gone cannot be tried again")
			}

			v, err = a.Update(ctx, h, seven, 5, set, optimistic.If("state", 2), optimistic.If("version", 5), optimistic.If("title", nil))
			c = conflict(t, err, optimistic.Condition)
			if want := `optimistic: article id 7: condition: the version is 5, as expected, and state is 1, not 2; title is "old", not NULL`; v != 5 || err.Error() != want {
				t.Errorf("version %d, %q, want %q", v, err, want)
			}
			if len(c.Failed) != 2 || c.Failed[0].Column != "state" || c.Failed[0].Wanted != 2 || c.Failed[1].Actual != "old" || c.Failed[1].Wanted != nil {
				t.Errorf("%+v", c.Failed)
			}
			if sqldb.Retryable(err) {
				t.Error("a condition that does not hold cannot be tried again")
			}
			_, err = a.Update(ctx, h, seven, 5, set, optimistic.If("title", sql.NullString{}))
			if c := conflict(t, err, optimistic.Condition); c.Failed[0].Wanted != nil {
				t.Errorf("a Valuer that is NULL: %+v", c.Failed)
			}
			if !maps.Equal(set, before) {
				t.Errorf("the Set is %v", set)
			}
			if v, err := a.Update(ctx, h, seven, 5, optimistic.Set{"title": "kept"}); err != nil || v != 6 {
				t.Errorf("after conflicts: version %d, %v", v, err)
			}
		})
		is(t, db, "kept", 6)
	})
}

// A version that is NULL, that is no integer, or that is not there, is no conflict.
func TestBadVersion(t *testing.T) {
	pools(t, func(t *testing.T, db *dbtest.DB) {
		a := article(t, db)
		check := func(what string, want error, text string) {
			t.Helper()
			both(t, db, func(t *testing.T, h sqldb.Handle) {
				_, updated := a.Update(t.Context(), h, seven, 0, title)
				deleted := a.Delete(t.Context(), h, seven, 0)
				for _, err := range []error{updated, deleted} {
					if !errors.Is(err, want) || errors.Is(err, optimistic.ErrConflict) || sqldb.Retryable(err) || !strings.Contains(err.Error(), text) {
						t.Errorf("%s: %v", what, err)
					}
				}
			})
		}
		db.MustExec(t, "UPDATE article SET version = NULL")
		check("NULL", optimistic.ErrNull, "article id 7: version is NULL")
		if db.Kind() == sqldb.SQLite {
			db.MustExec(t, "UPDATE article SET version = 'abc'")
			check("a text", optimistic.ErrBadRow, "version is text")
			db.MustExec(t, "UPDATE article SET version = 0.5")
			check("a half", optimistic.ErrBadRow, "version is real")
			// A column without a type keeps a REAL, which equals an integer, and from 2^53
			// on does not go up.
			db.MustExec(t, "DROP TABLE article", "CREATE TABLE article (id INTEGER PRIMARY KEY, title, state, version)", "INSERT INTO article VALUES (7, 'old', 1, 0.0)")
			check("a REAL", optimistic.ErrBadRow, "version is real")
			return
		}
		db.MustExec(t, "DROP TABLE article", "CREATE TABLE article (id BIGINT PRIMARY KEY, title VARCHAR(20), state INT, version DECIMAL(20,1))", "INSERT INTO article VALUES (7, 'old', 1, 0.5)")
		check("a half", optimistic.ErrBadRow, "version is no integer")
		if db.Kind().InnoDB() {
			db.MustExec(t, "ALTER TABLE article MODIFY version BIGINT UNSIGNED", "UPDATE article SET version = 18446744073709551615")
			check("too large for an int64", optimistic.ErrBadRow, "is larger than")
		}
	})
}

func TestMissing(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		a := open(t, db.DB, articles)
		update := func() error { _, err := a.Update(t.Context(), db.DB, seven, 0, title); return err }
		if err := update(); sqldb.ClassOf(err) != sqldb.NoTable || errors.Is(err, optimistic.ErrConflict) || !strings.Contains(err.Error(), "article does not exist") {
			t.Errorf("no table: %v", err)
		}
		db.MustExec(t, "CREATE TABLE article (id BIGINT PRIMARY KEY, title VARCHAR(20))", "INSERT INTO article VALUES (7, 'old')")
		if err := update(); sqldb.ClassOf(err) != sqldb.NoColumn || errors.Is(err, optimistic.ErrConflict) || !strings.Contains(err.Error(), "version-column") {
			t.Errorf("no column: %v", err)
		}
		if err := a.Delete(t.Context(), db.DB, seven, 0); sqldb.ClassOf(err) != sqldb.NoColumn {
			t.Errorf("no column: %v", err)
		}
		db.MustExec(t, "CREATE TABLE other (id BIGINT PRIMARY KEY, version BIGINT)", "INSERT INTO other VALUES (7, 0)")
		b := open(t, db.DB, optimistic.Table{Name: "other", Key: []string{"id"}, Version: "version"})
		if err := b.Delete(t.Context(), db.DB, seven, 0, optimistic.If("state", "state")); sqldb.ClassOf(err) != sqldb.NoColumn {
			t.Errorf("no column of a condition: %v", err)
		}
	})
}

// What does not fit is an error, and changes nothing, also where the session would let
// it saturate, or cut it.
func TestOverflow(t *testing.T) {
	pools(t, func(t *testing.T, db *dbtest.DB) {
		most := map[string]int64{"SMALLINT": math.MaxInt16, "BIGINT": math.MaxInt64}
		if db.Kind() == sqldb.SQLite {
			delete(most, "SMALLINT") // every integer has 64 bits
		}
		for column, most := range most {
			name := strings.ToLower(column) + "_article"
			db.MustExec(t, "CREATE TABLE "+name+" (id BIGINT PRIMARY KEY, title VARCHAR(20), version "+column+" NOT NULL)",
				fmt.Sprintf("INSERT INTO %s VALUES (7, 'old', %d)", name, most))
			a := open(t, db.DB, optimistic.Table{Name: name, Key: []string{"id"}, Version: "version"})
			both(t, db, func(t *testing.T, h sqldb.Handle) {
				v, err := a.Update(t.Context(), h, seven, most, title)
				if !errors.Is(err, optimistic.ErrOverflow) || errors.Is(err, optimistic.ErrConflict) || v != most {
					t.Errorf("%s: version %d, %v", column, v, err)
				}
			})
			both(t, db, func(t *testing.T, h sqldb.Handle) { // what does not fit into the column is compared all the same
				_, err := a.Update(t.Context(), h, seven, math.MaxInt64-1, title)
				if c := conflict(t, err, optimistic.Stale); c.Current != most {
					t.Errorf("%+v", c)
				}
			})
			if most < math.MaxInt64 {
				_, err := a.Update(t.Context(), db.DB, seven, math.MaxInt64, title)
				conflict(t, err, optimistic.Stale)
			}
			var gotTitle string
			var version int64
			err := db.SQL.QueryRow("SELECT title, version FROM "+name).Scan(&gotTitle, &version)
			if err != nil || gotTitle != "old" || version != most {
				t.Errorf("%s: %q, version %d, %v", column, gotTitle, version, err)
			}
		}
		a := article(t, db)
		if db.Kind() == sqldb.SQLite {
			return // its columns take everything
		}
		for what, set := range map[string]optimistic.Set{"a number": {"state": int64(3000000000)}, "a text": {"title": strings.Repeat("x", 21)}} {
			both(t, db, func(t *testing.T, h sqldb.Handle) {
				if _, err := a.Update(t.Context(), h, seven, 0, set); err == nil || errors.Is(err, optimistic.ErrConflict) {
					t.Errorf("%s: %v", what, err)
				}
			})
		}
		is(t, db, "old", 0)
	})
}

// The control: by hand, an empty sql_mode lets a version saturate, and the row counts
// as changed; from then on it protects nothing.
func TestSaturates(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		db.MustExec(t, "CREATE TABLE article (id BIGINT PRIMARY KEY, title VARCHAR(20), version SMALLINT NOT NULL)", "INSERT INTO article VALUES (7, 'old', 32767)")
		parameter(t, db, "sql_mode", "''")
		res, err := db.Exec(t.Context(), "UPDATE article SET title = 'new', version = version + 1 WHERE id = 7 AND version = 32767")
		if err != nil || res.RowsAffected != 1 {
			t.Errorf("%d rows, %v", res.RowsAffected, err)
		}
		is(t, db, "new", 32767)
	})
}

func TestCompositeKey(t *testing.T) {
	pools(t, func(t *testing.T, db *dbtest.DB) {
		db.MustExec(t, `CREATE TABLE line (order_id BIGINT, code VARCHAR(20), n INT, version BIGINT NOT NULL, PRIMARY KEY (order_id, code))`,
			"INSERT INTO line VALUES (1, 'a', 1, 0), (1, 'b', 1, 0), (2, 'a', 1, 0)")
		lines := open(t, db.DB, optimistic.Table{Name: db.Schema() + ".line", Key: []string{"order_id", "code"}, Version: "version"})
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			if v, err := lines.Update(t.Context(), h, optimistic.Key(1, "b"), 0, optimistic.Set{"n": 5}); err != nil || v != 1 {
				t.Fatalf("version %d, %v", v, err)
			}
			err := lines.Delete(t.Context(), h, optimistic.Key(1, "b"), 0)
			conflict(t, err, optimistic.Stale)
			if !strings.Contains(err.Error(), "line order_id 1, code b: stale") {
				t.Error(err)
			}
			conflict(t, lines.Delete(t.Context(), h, optimistic.Key(2, "b"), 0), optimistic.Gone)
		})
		var n, changed int
		if err := db.SQL.QueryRow("SELECT SUM(n), SUM(version) FROM line").Scan(&n, &changed); err != nil || n != 7 || changed != 1 {
			t.Errorf("sum %d, %d changes, %v", n, changed, err)
		}
	})
}

// A key that is not unique protects nothing.
func TestAmbiguousKey(t *testing.T) {
	pools(t, func(t *testing.T, db *dbtest.DB) {
		db.MustExec(t, "CREATE TABLE article (id BIGINT, title VARCHAR(20), state INT, version BIGINT)",
			"INSERT INTO article VALUES (7, 'old', 1, 0), (7, 'old', 1, 0)")
		a := open(t, db.DB, articles)
		// MySQL and MariaDB see it too late, and must say so.
		late := db.Kind().InnoDB()
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			_, err := a.Update(t.Context(), h, seven, 0, title)
			if !errors.Is(err, optimistic.ErrBadRow) || sqldb.Uncertain(err) != (late && h == db.DB) {
				t.Errorf("%v", err)
			}
			if _, err := a.Update(t.Context(), h, seven, 5, title); !errors.Is(err, optimistic.ErrBadRow) || sqldb.Uncertain(err) {
				t.Errorf("%v", err)
			}
		})
	})
}

// A word of SQL is a column as good as any.
func TestQuoted(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		q := db.Kind().Quote
		db.MustExec(t, fmt.Sprintf("CREATE TABLE %s (%s BIGINT PRIMARY KEY, %s VARCHAR(20), %s BIGINT NOT NULL)", q("order"), q("select"), q("Where"), q("from")),
			fmt.Sprintf("INSERT INTO %s VALUES (7, 'old', 0)", q("order")))
		a := open(t, db.DB, optimistic.Table{Name: "order", Key: []string{"select"}, Version: "from"})
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			if v, err := a.Update(t.Context(), h, seven, 0, optimistic.Set{"Where": "it's ?1 $1"}, optimistic.If("Where", "old")); err != nil || v != 1 {
				t.Errorf("version %d, %v", v, err)
			}
		})
	})
}

// What can't be right is refused before any SQL runs: the driver is nil.
func TestRefusedBeforeSQL(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	none := db.Wrap(func(sqldb.Driver) sqldb.Driver { return nil })
	both := articles
	both.Token = "token"
	a := open(t, none, both)
	var nilDB *sqldb.DB
	var nilTx *sqldb.Tx
	var nilTable *optimistic.Table
	other, err := sqldb.New(nil, sqldb.Server{Kind: sqldb.MySQL, Schema: "x"})
	if err != nil {
		t.Fatal(err)
	}
	type set = optimistic.Set
	for name, c := range map[string]struct {
		t     *optimistic.Table
		h     sqldb.Handle
		key   optimistic.RowKey
		set   set
		conds []optimistic.Cond
	}{
		"no table":         {nilTable, none, seven, nil, nil},
		"not by New":       {&optimistic.Table{Name: "article", Key: []string{"id"}, Version: "version"}, none, seven, nil, nil},
		"no version":       {open(t, none, optimistic.Table{Name: "article", Key: []string{"id"}, Token: "token"}), none, seven, nil, nil},
		"nil handle":       {a, nil, seven, nil, nil},
		"nil DB":           {a, nilDB, seven, nil, nil},
		"nil Tx":           {a, nilTx, seven, nil, nil},
		"a pool":           {a, db.Tx(db.SQL), seven, nil, nil},
		"another database": {a, other, seven, nil, nil},
		"no key":           {a, none, optimistic.RowKey{}, nil, nil},
		"two keys":         {a, none, optimistic.Key(7, 8), nil, nil},
		"nil key":          {a, none, optimistic.Key(nil), nil, nil},
		"float key":        {a, none, optimistic.Key(1.9), nil, nil},
		"time key":         {a, none, optimistic.Key(time.Now()), nil, nil},
		"If: injection":    {a, none, seven, nil, []optimistic.Cond{optimistic.If("1=1 OR id", 1)}},
		"If: empty":        {a, none, seven, nil, []optimistic.Cond{{}}},
		"If twice":         {a, none, seven, nil, []optimistic.Cond{optimistic.If("state", 1), optimistic.If("STATE", 2)}},
	} {
		if _, err := c.t.Update(t.Context(), c.h, c.key, 0, c.set, c.conds...); !errors.Is(err, optimistic.ErrInvalid) {
			t.Errorf("Update, %s: %v", name, err)
		}
		if err := c.t.Delete(t.Context(), c.h, c.key, 0, c.conds...); !errors.Is(err, optimistic.ErrInvalid) {
			t.Errorf("Delete, %s: %v", name, err)
		}
	}
	for name, s := range map[string]set{
		"injection": {"title = 'x', state": 1}, "quote": {`ti"tle`: 1}, "empty": {"": 1}, "the key": {"id": 8}, "the version": {"version": 1},
		"the version, in capitals": {"VERSION": 1}, "the token": {"token": 1}, "twice": {"title": 1, "Title": 2},
	} {
		if _, err := a.Update(t.Context(), none, seven, 0, s); !errors.Is(err, optimistic.ErrInvalid) {
			t.Errorf("Set, %s: %v", name, err)
		}
	}
	// What cannot be sent is not sent.
	if _, err := a.Update(t.Context(), none, seven, 0, set{"title": struct{}{}}); err == nil {
		t.Error("a struct was sent")
	}
	if _, err := a.Update(t.Context(), none, seven, 0, nil, optimistic.If("title", []int{1})); err == nil {
		t.Error("a slice was sent")
	}
	for name, bad := range map[string]optimistic.Table{
		"no name": {Key: []string{"id"}, Version: "v"}, "no key": {Name: "t", Version: "v"}, "nothing to compare": {Name: "t", Key: []string{"id"}},
		"injection": {Name: "t; DROP TABLE t", Key: []string{"id"}, Version: "v"}, "quote": {Name: "t", Key: []string{`i"d`}, Version: "v"},
		"two dots": {Name: "a.b.c", Key: []string{"id"}, Version: "v"}, "too long": {Name: strings.Repeat("t", 64), Key: []string{"id"}, Version: "v"},
		"same column": {Name: "t", Key: []string{"id"}, Version: "id"}, "key twice": {Name: "t", Key: []string{"id", "ID"}, Version: "v"},
		"empty key": {Name: "t", Key: []string{""}, Version: "v"}, "bad version": {Name: "t", Key: []string{"id"}, Version: "v v"},
		"bad token": {Name: "t", Key: []string{"id"}, Token: "v v"}, "version and token": {Name: "t", Key: []string{"id"}, Version: "v", Token: "v"},
	} {
		if _, err := optimistic.New(none, bad); !errors.Is(err, optimistic.ErrInvalid) {
			t.Errorf("New, %s: %v", name, err)
		}
	}
	if _, err := optimistic.New(nil, articles); !errors.Is(err, optimistic.ErrInvalid) {
		t.Errorf("New(nil): %v", err)
	}
}

// A changed description changes nothing in the table that was made of it.
func TestNewCopies(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	article(t, db)
	key := []string{"id"}
	a := open(t, db.DB, optimistic.Table{Name: "article", Key: key, Version: "version"})
	key[0] = "title"
	if _, err := a.Update(t.Context(), db.DB, seven, 0, title); err != nil {
		t.Error(err)
	}
}

// A row that can be read and not be changed is no endless loop, and no conflict.
func TestUnmoved(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		article(t, db)
		db.MustExec(t, "CREATE FUNCTION stay() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
			"CREATE TRIGGER stay BEFORE UPDATE ON article FOR EACH ROW EXECUTE FUNCTION stay()")
		handle, counter := dbtest.Count(db.DB)
		a := open(t, handle, articles)
		check := func(h sqldb.Handle) error {
			_, err := a.Update(t.Context(), h, seven, 0, title)
			if q := counter.Take(); !errors.Is(err, optimistic.ErrBadRow) || len(q) > 40 {
				t.Errorf("%v after %d statements", err, len(q))
			}
			return nil
		}
		_ = check(handle)
		if err := handle.InTx(t.Context(), sqldb.TxOptions{}, func(_ context.Context, tx *sqldb.Tx) error { return check(tx) }); err != nil {
			t.Error(err)
		}
	})
}

// An update is one round trip, a refusal two, and one more in a transaction of
// PostgreSQL only to find out what "gone" is worth.
func TestStatements(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		article(t, db)
		handle, counter := dbtest.Count(db.DB)
		a := open(t, handle, articles)
		err := handle.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			for _, h := range []sqldb.Handle{tx} {
				v, err := a.Update(ctx, h, seven, 0, title)
				if q := counter.Take(); err != nil || len(q) != 1 || v != 1 {
					t.Errorf("version %d, %v, %q", v, err, q)
				}
				if _, err := a.Update(ctx, h, seven, 0, title); !errors.Is(err, optimistic.ErrConflict) {
					t.Error(err)
				}
				if q := counter.Take(); len(q) != 2 {
					t.Errorf("%q", q)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if v, err := a.Update(t.Context(), handle, seven, 1, title); err != nil || v != 2 {
			t.Errorf("version %d, %v", v, err)
		}
		if q := counter.Take(); len(q) != 1 {
			t.Errorf("%q", q)
		}
	})
}
