package stock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// minute is longer than any test.
const minute = 10 * time.Minute

// shelf is goods with the tables of reservations.
func shelf(t testing.TB, db *dbtest.DB, rows int) *stock.Stock {
	t.Helper()
	if err := migrations.Up(t.Context(), db.DB); err != nil {
		t.Fatal(err)
	}
	return goods(t, db, rows)
}

// reserve reserves, or ends the test.
func reserve(t testing.TB, s *stock.Stock, h sqldb.Handle, lines ...stock.Line) stock.Hold {
	t.Helper()
	hold, err := s.Reserve(t.Context(), h, lines, minute)
	if err != nil {
		t.Fatal(err)
	}
	return hold
}

// reservation is the part of a Hold's ID that the table has.
func reservation(hold stock.Hold) string {
	id, _, _ := strings.Cut(hold.ID, ".")
	return id
}

// expire sets the times of reservations back, so that they have expired.
func expire(t testing.TB, db *dbtest.DB, holds ...stock.Hold) {
	t.Helper()
	shift(t, db, "-", holds...)
}

// shift sets the times of reservations back ("-") or forth ("+") by an hour.
func shift(t testing.TB, db *dbtest.DB, sign string, holds ...stock.Hold) {
	t.Helper()
	hour := map[sqldb.Kind]string{sqldb.Postgres: "interval '1 hour'", sqldb.SQLite: "3600000000"}[db.Kind()]
	if hour == "" {
		hour = "INTERVAL 1 HOUR"
	}
	for _, h := range holds {
		id := reservation(h)
		db.MustExec(t, "UPDATE "+db.Table("reservations")+" SET expires_at = expires_at "+sign+" "+hour+" WHERE id = '"+id+"'",
			"UPDATE "+db.Table("reservation_lines")+" SET held_until = held_until "+sign+" "+hour+" WHERE reservation = '"+id+"'")
	}
}

// wantHold compares state and lines of a reservation: "held 1:2 2:-", where - is a
// line that is closed.
func wantHold(t testing.TB, db *dbtest.DB, hold stock.Hold, want string) {
	t.Helper()
	id := reservation(hold)
	var state string
	if err := db.SQL.QueryRow("SELECT state FROM " + db.Table("reservations") + " WHERE id = '" + id + "'").Scan(&state); err != nil {
		t.Fatal(err)
	}
	rows, err := db.SQL.Query("SELECT id, n, held_until IS NOT NULL FROM " + db.Table("reservation_lines") + " WHERE reservation = '" + id + "' ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var key string
		var n int64
		var open bool
		if err := rows.Scan(&key, &n, &open); err != nil {
			t.Fatal(err)
		}
		if open {
			state += fmt.Sprintf(" %s:%d", key, n)
		} else {
			state += fmt.Sprintf(" %s:-", key)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if state != want {
		t.Errorf("the reservation is %q, want %q", state, want)
	}
}

// dbNow is the database's clock.
func dbNow(t testing.TB, db *dbtest.DB) (now time.Time) {
	t.Helper()
	query := map[sqldb.Kind]string{sqldb.Postgres: "SELECT clock_timestamp()", sqldb.SQLite: "SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)"}[db.Kind()]
	if query == "" {
		query = "SELECT CAST(UTC_TIMESTAMP(6) AS CHAR)"
	}
	if err := db.QueryRow(context.Background(), query).Scan(&now); err != nil {
		t.Fatal(err)
	}
	return now
}

// past waits until the database's clock is past a time.
func past(t testing.TB, db *dbtest.DB, at time.Time) {
	t.Helper()
	for !dbNow(t, db).After(at) {
		time.Sleep(5 * time.Millisecond)
	}
}

func TestReserveConfirmCancel(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := shelf(t, db, 3)
		left := int64(100)
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			ctx := t.Context()
			before := dbNow(t, db)
			sold, err := s.Reserve(ctx, h, []stock.Line{{3, 2}, {1, 5}, {uint8(3), 1}}, minute, stock.Note("Zoë's cart"))
			left -= 3
			if err != nil || len(sold.Lefts) != 3 {
				t.Fatalf("%+v, %v", sold, err)
			}
			if sold.Lefts[0] != left || sold.Lefts[2] != left {
				t.Errorf("lefts %v, want %d of the first and the third", sold.Lefts, left)
			}
			if sold.ExpiresAt.Before(before.Add(minute-time.Second)) || sold.ExpiresAt.After(before.Add(minute+time.Minute)) {
				t.Errorf("made at %v, expires at %v", before, sold.ExpiresAt)
			}
			back := reserve(t, s, h, stock.Line{ID: 2, N: 100})
			if sold.ID == back.ID || len(sold.ID) < 40 {
				t.Errorf("IDs %q and %q", sold.ID, back.ID)
			}
			for i := range 3 { // twice is harmless
				if err := s.Confirm(ctx, h, sold.ID); err != nil {
					t.Errorf("confirm %d: %v", i, err)
				}
				if err := s.Cancel(ctx, h, back.ID); err != nil {
					t.Errorf("cancel %d: %v", i, err)
				}
			}
			var e *stock.HoldError
			if err := s.Cancel(ctx, h, sold.ID); !errors.Is(err, stock.ErrConfirmed) || !errors.As(err, &e) || e.Reservation != reservation(sold) || e.At.Before(before) {
				t.Errorf("cancel what was confirmed: %v", err)
			}
			if err := s.Confirm(ctx, h, back.ID); !errors.Is(err, stock.ErrCancelled) || errors.Is(err, stock.ErrExpired) {
				t.Errorf("confirm what was cancelled: %v", err)
			}
			if _, secret, _ := strings.Cut(sold.ID, "."); strings.Contains(e.Error(), secret) {
				t.Errorf("the error says who may settle it: %v", e)
			}
			if sold2, err := s.Sweep(ctx, h); err != nil || sold2 != 0 {
				t.Errorf("swept %d, %v", sold2, err)
			}
			t.Cleanup(func() {
				wantHold(t, db, sold, "confirmed 1:- 3:-")
				wantHold(t, db, back, "cancelled 2:-")
			})
		})
		wantCounts(t, db, 90, 100, 94)
		var notes int
		if err := db.SQL.QueryRow("SELECT count(*) FROM " + db.Table("reservations") + " WHERE note = 'Zoë''s cart' AND settled_at >= created_at").Scan(&notes); err != nil || notes != 2 {
			t.Errorf("%d notes, %v", notes, err)
		}
	})
}

// In real time: what has expired can't be confirmed any more, also while nobody has
// given it back yet, and goes back once.
func TestReserveExpires(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := shelf(t, db, 2)
		ctx := t.Context()
		var holds []stock.Hold
		for range 3 {
			hold, err := s.Reserve(ctx, db.DB, []stock.Line{{2, 1}, {1, 10}}, stock.MinTTL)
			if err != nil {
				t.Fatal(err)
			}
			holds = append(holds, hold)
		}
		past(t, db, holds[2].ExpiresAt)
		refused := func(when string) {
			for _, hold := range holds {
				both(t, db, func(t *testing.T, h sqldb.Handle) {
					var e *stock.HoldError
					if err := s.Confirm(ctx, h, hold.ID); !errors.Is(err, stock.ErrExpired) || !errors.As(err, &e) || !e.At.Equal(hold.ExpiresAt) {
						t.Errorf("%s: confirm: %v", when, err)
					}
					if err := s.Cancel(ctx, h, hold.ID); !errors.Is(err, stock.ErrExpired) {
						t.Errorf("%s: cancel: %v", when, err)
					}
				})
			}
		}
		refused("before the sweep")
		wantCounts(t, db, 70, 97)
		if n, err := s.Sweep(ctx, db.DB); err != nil || n != 3 {
			t.Errorf("swept %d, %v", n, err)
		}
		if n, err := s.Sweep(ctx, db.DB); err != nil || n != 0 {
			t.Errorf("swept %d once more, %v", n, err)
		}
		refused("after the sweep")
		wantCounts(t, db, 100, 100)
		wantHold(t, db, holds[0], "expired 1:- 2:-")
	})
}

// The time begins when the rows are locked, and not when somebody begins to wait for
// them: else a reservation could be had that has expired.
func TestReserveTimeBeginsBehindTheWait(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel() // it waits for a time to pass
		s := shelf(t, db, 1)
		blocker := begin(t, db, "")
		if _, err := s.Take(t.Context(), blocker.tx, 1, 1); err != nil {
			t.Fatal(err)
		}
		handle, sent := watch(db.DB, "FOR NO KEY UPDATE", "FOR UPDATE")
		done := make(chan stock.Hold, 1)
		go func() {
			hold, err := s.Reserve(context.Background(), handle, []stock.Line{{1, 1}}, stock.MinTTL)
			if err != nil {
				t.Error(err)
			}
			done <- hold
		}()
		<-sent // it waits from here on
		past(t, db, dbNow(t, db).Add(2*stock.MinTTL))
		released := dbNow(t, db)
		if err := blocker.commit(); err != nil {
			t.Fatal(err)
		}
		if hold := <-done; hold.ExpiresAt.Before(released.Add(stock.MinTTL)) {
			t.Errorf("the rows were had after %v, and the reservation expires at %v", released, hold.ExpiresAt)
		}
	})
}

// The interleaving: Confirm is sent in time and waits for the reservation's row; the
// time passes; the row is free. A statement that locks and decides at once would go by
// a clock that has stopped before the wait.
func TestConfirmDecidesBehindTheWait(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel() // it waits for a time to pass
		for _, op := range []string{"confirm", "cancel"} {
			s := open(t, db.DB, goodsTable)
			if op == "confirm" {
				s = shelf(t, db, 1)
			}
			hold, err := s.Reserve(t.Context(), db.DB, []stock.Line{{1, 1}}, 5*stock.MinTTL)
			if err != nil {
				t.Fatal(err)
			}
			blocker := begin(t, db, "")
			if err := blocker.tx.QueryRow(t.Context(), "SELECT id FROM "+db.Table("reservations")+" WHERE id = '"+reservation(hold)+"' FOR UPDATE").Scan(new(string)); err != nil {
				t.Fatal(err)
			}
			handle, sent := watch(db.DB, "FOR UPDATE")
			done := make(chan error, 1)
			go func() {
				if op == "confirm" {
					done <- s.Confirm(context.Background(), handle, hold.ID)
				} else {
					done <- s.Cancel(context.Background(), handle, hold.ID)
				}
			}()
			<-sent
			if late := dbNow(t, db).After(hold.ExpiresAt); late {
				t.Log("the machine was too slow for this test to show anything")
			}
			past(t, db, hold.ExpiresAt)
			if err := blocker.commit(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; !errors.Is(err, stock.ErrExpired) {
				t.Errorf("%s: %v", op, err)
			}
		}
	})
}

// What was confirmed in time stays so, however late the caller commits; who wants to
// sweep it leaves it alone.
func TestConfirmInTimeCommittedLate(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel() // it waits for a time to pass
		s := shelf(t, db, 1)
		ctx := t.Context()
		hold, err := s.Reserve(ctx, db.DB, []stock.Line{{1, 100}}, 1500*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		tx := begin(t, db, "")
		if err := s.Confirm(ctx, tx.tx, hold.ID); err != nil {
			t.Fatal(err)
		}
		past(t, db, hold.ExpiresAt)
		if n, err := s.Sweep(ctx, db.DB); err != nil || n != 0 {
			t.Errorf("swept %d, %v", n, err)
		}
		inTx(t, db, func(h sqldb.Handle) {
			if _, err := s.Take(ctx, h, 1, 1); !errors.Is(err, stock.ErrSoldOut) {
				t.Errorf("what is being confirmed was taken: %v", err)
			}
		})
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		wantHold(t, db, hold, "confirmed 1:-")
		if err := s.Confirm(ctx, db.DB, hold.ID); err != nil {
			t.Errorf("again, after its time: %v", err)
		}
		wantCounts(t, db, 0)
	})
}

// A refusal leaves nothing behind, also if the caller commits.
func TestReserveRefused(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := shelf(t, db, 2)
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			hold, err := s.Reserve(t.Context(), h, []stock.Line{{1, 1}, {2, 101}}, minute)
			var short *stock.ShortError
			if !errors.As(err, &short) || len(short.Lines) != 1 || short.Lines[0] != (stock.Short{ID: int64(2), Wanted: 101, Left: 100}) || hold.ID != "" {
				t.Errorf("%+v, %v", hold, err)
			}
			if _, err := s.Reserve(t.Context(), h, []stock.Line{{1, 1}, {9, 1}}, minute); !errors.Is(err, stock.ErrNotFound) {
				t.Errorf("%v", err)
			}
			if _, err := s.Put(t.Context(), h, 1, 1); err != nil {
				t.Errorf("after a refusal: %v", err)
			}
		})
		wantCounts(t, db, 102, 100)
		for _, table := range []string{"reservations", "reservation_lines"} {
			var n int
			if err := db.SQL.QueryRow("SELECT count(*) FROM " + db.Table(table)).Scan(&n); err != nil || n != 0 {
				t.Errorf("%d rows in %s, %v", n, table, err)
			}
		}
	})
}

// What the caller rolls back was never reserved, confirmed or cancelled.
func TestReserveRolledBack(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := shelf(t, db, 1)
		ctx := t.Context()
		kept := reserve(t, s, db.DB, stock.Line{ID: 1, N: 10})
		var gone stock.Hold
		for i, f := range []func(tx *sqldb.Tx) error{
			func(tx *sqldb.Tx) (err error) {
				gone, err = s.Reserve(ctx, tx, []stock.Line{{1, 1}}, minute)
				return err
			},
			func(tx *sqldb.Tx) error { return s.Confirm(ctx, tx, kept.ID) },
			func(tx *sqldb.Tx) error { return s.Cancel(ctx, tx, kept.ID) },
		} {
			tx := begin(t, db, "")
			if err := f(tx.tx); err != nil {
				t.Errorf("%d: %v", i, err)
			}
			if err := tx.rollback(); err != nil {
				t.Fatal(err)
			}
		}
		wantCounts(t, db, 90)
		wantHold(t, db, kept, "held 1:10")
		if err := s.Confirm(ctx, db.DB, gone.ID); !errors.Is(err, stock.ErrNoReservation) {
			t.Errorf("%v", err)
		}
	})
}

// watched sees the first statement with one of some texts being sent.
type watched struct {
	sqldb.Driver
	words []string
	once  *sync.Once
	sent  chan struct{}
}

// watch returns the same database, and a channel that is closed when a statement with
// one of the texts is sent in a transaction.
func watch(db *sqldb.DB, words ...string) (*sqldb.DB, <-chan struct{}) {
	sent := make(chan struct{})
	once := &sync.Once{}
	return db.Wrap(func(d sqldb.Driver) sqldb.Driver { return watched{d, words, once, sent} }), sent
}

func (w watched) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	tx, err := w.Driver.Begin(ctx, o)
	return watchedTx{tx, w}, err
}

type watchedTx struct {
	sqldb.DriverTx
	w watched
}

func (t watchedTx) see(query string) {
	if slices.ContainsFunc(t.w.words, func(word string) bool { return strings.Contains(query, word) }) {
		t.w.once.Do(func() { close(t.w.sent) })
	}
}

func (t watchedTx) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	t.see(query)
	return t.DriverTx.Query(ctx, query, args)
}

func (t watchedTx) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	t.see(query)
	return t.DriverTx.Exec(ctx, query, args)
}
