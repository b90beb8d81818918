package sqllock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/lock/locktest"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// hold is a process that takes a lock and does, one after the other, what its stdin
// says: "check" looks whether the lock is held; "plain" writes to the table account;
// "guarded" writes under a guard.
func hold(args []string) int {
	ctx := context.Background()
	fail := func(err error) int {
		fmt.Println("error", err)
		return 1
	}
	db, _, err := dbtest.Open(ctx, args[0], args[1])
	if err != nil {
		return fail(err)
	}
	ttl, err := time.ParseDuration(args[2])
	if err != nil {
		return fail(err)
	}
	locker, err := sqllock.New(ctx, db)
	if err != nil {
		return fail(err)
	}
	l, err := locker.Acquire(ctx, "job", lock.TTL(ttl))
	if err != nil {
		return fail(err)
	}
	fmt.Println("held", l.Token())
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		var err error
		switch s.Text() {
		case "check":
			err = l.Err()
		case "plain", "guarded":
			err = db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
				if s.Text() == "guarded" {
					if err := l.Guard(ctx, tx); err != nil {
						return err
					}
				}
				_, err := tx.Exec(ctx, "UPDATE account SET "+s.Text()+" = "+s.Text()+" + 1")
				return err
			})
		}
		switch {
		case errors.Is(err, lock.ErrLost):
			fmt.Println(s.Text(), "lost")
		case err != nil:
			fmt.Println(s.Text(), "error", err)
		default:
			fmt.Println(s.Text(), "done")
		}
	}
	return 0
}

const childTTL = 2 * time.Second

// account makes the table that the child writes to, and starts it.
func account(t *testing.T, db *dbtest.DB) (*locktest.Process, *sqllock.Locker) {
	t.Helper()
	locker := table(t, db)
	db.MustExec(t, "CREATE TABLE account (plain INT NOT NULL, guarded INT NOT NULL)", "INSERT INTO account VALUES (0, 0)")
	return locktest.Start(t, "hold", db.Kind().String(), db.DSN, childTTL.String()), locker
}

// written is what the child has written.
func written(t *testing.T, db *dbtest.DB) (plain, guarded int) {
	t.Helper()
	if err := db.SQL.QueryRowContext(t.Context(), "SELECT plain, guarded FROM account").Scan(&plain, &guarded); err != nil {
		t.Fatal(err)
	}
	return plain, guarded
}

// A holder that is killed keeps its lock from others for no longer than its TTL.
func TestHolderIsKilled(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		child, locker := account(t, db)
		token := child.Expect("held")
		child.Send("guarded")
		child.Expect("guarded done")
		child.Kill()
		killed := time.Now()
		got, err := locker.Acquire(t.Context(), "job", lock.Wait(childTTL+20*time.Second))
		took := time.Since(killed)
		if err != nil {
			t.Fatalf("after %v: %v", took, err)
		}
		if took > childTTL+5*time.Second { // the poll, and a machine that does other things
			t.Errorf("it took %v; the TTL is %v", took, childTTL)
		}
		if strconv.FormatInt(got.Token(), 10) <= token { // both have 16 digits
			t.Errorf("token %d after %s", got.Token(), token)
		}
		if err := got.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A holder that is stopped beyond its TTL, and does not know that: its guarded write
// is refused. The control: its unguarded write is not.
func TestHolderIsStopped(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		child, locker := account(t, db)
		child.Expect("held")
		for _, write := range []string{"check", "guarded", "plain"} {
			child.Send(write)
			child.Expect(write + " done")
		}
		child.Stop()
		got, err := locker.Acquire(t.Context(), "job", lock.Wait(childTTL+20*time.Second))
		if err != nil {
			t.Fatalf("while the holder is stopped: %v", err)
		}
		child.Send("guarded")
		child.Continue()
		child.Expect("guarded lost")
		child.Send("plain")
		child.Expect("plain done")
		child.Send("check")
		child.Expect("check lost")
		if plain, guarded := written(t, db); plain != 2 || guarded != 1 {
			t.Errorf("%d plain and %d guarded writes are there; it has to be 2 and 1", plain, guarded)
		}
		if err := got.Err(); err != nil {
			t.Errorf("the successor: %v", err)
		}
		if err := got.Release(t.Context()); err != nil {
			t.Errorf("the successor's release: %v", err)
		}
	})
}
