// Command lock shows a lock on a database: two goroutines that want the same
// invoice. One gets the lock; the other does not wait, and is told who has it. What
// the first one writes is guarded: it commits only if the lock is still its own.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"sync"

	_ "modernc.org/sqlite"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
	"github.com/sqlnative/locks/sqllock"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "lock")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	pool, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "lock.db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	db, err := sqlitedb.New(ctx, pool) // or pgdb.New(ctx, pgxPool), pgdb.SQL, mysqldb.New
	if err != nil {
		return err
	}
	if err := migrations.Up(ctx, db); err != nil { // or: sqllock-migrate up
		return err
	}
	if _, err := pool.ExecContext(ctx, "CREATE TABLE invoices (id INTEGER PRIMARY KEY, sent_by TEXT)"); err != nil {
		return err
	}
	locker, err := sqllock.New(ctx, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close()) }()

	name := lock.Name("invoice", "42")
	has, seen := make(chan struct{}), make(chan struct{})
	var first, second error
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(has) // if it was not had
		first = lock.Do(ctx, locker, name, func(ctx context.Context, l *lock.Lock) error {
			has <- struct{}{}
			<-seen // the work, which takes its time
			return send(ctx, pool, db, l)
		}, lock.Label("first"))
	})
	wg.Go(func() {
		defer close(seen)
		<-has
		second = lock.Do(ctx, locker, name, func(context.Context, *lock.Lock) error {
			return errors.New("both have it")
		}, lock.Try(), lock.Label("second"))
		var held *lock.HeldError
		if errors.As(second, &held) { // errors.Is(second, lock.ErrHeld), and more
			fmt.Fprintf(out, "second: %s is held by %q, and need not wait for it\n", held.Name, held.Holder.Label)
			second = nil
		}
	})
	wg.Wait()
	if err := errors.Join(first, second); err != nil {
		return err
	}

	var by string
	if err := pool.QueryRowContext(ctx, "SELECT sent_by FROM invoices WHERE id = 42").Scan(&by); err != nil {
		return err
	}
	fmt.Fprintf(out, "invoice 42 was sent by %s\n", by)
	return nil
}

// send writes in a transaction of its own. Guard pins the lock in it until it ends:
// however long this program is stopped between Guard and Commit, nobody else gets
// the lock; and if somebody has got it before, Guard is [lock.ErrLost].
func send(ctx context.Context, pool *sql.DB, db *sqldb.DB, l *lock.Lock) error {
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing after Commit
	if err := l.Guard(ctx, db.Tx(tx)); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO invoices (id, sent_by) VALUES (42, 'first')"); err != nil {
		return err
	}
	return tx.Commit()
}
