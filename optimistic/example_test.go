package optimistic_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/optimistic"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
	"github.com/sqlnative/locks/sqllock"
)

// memory opens a database in memory.
func memory(schema string) (*sql.DB, *sqldb.DB) {
	pool, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	pool.SetMaxOpenConns(1)
	if _, err := pool.Exec(schema); err != nil {
		log.Fatal(err)
	}
	db, err := sqlitedb.New(context.Background(), pool)
	if err != nil {
		log.Fatal(err)
	}
	return pool, db
}

const articleSchema = `CREATE TABLE article (id INTEGER PRIMARY KEY, title TEXT, state INT NOT NULL DEFAULT 1, version BIGINT NOT NULL DEFAULT 0);
	INSERT INTO article (id, title) VALUES (7, 'draft')`

// Two people edit an article that both have read.
func ExampleTable_Update() {
	ctx := context.Background()
	pool, db := memory(articleSchema)
	defer pool.Close()

	t, err := optimistic.New(db, optimistic.Table{Name: "article", Key: []string{"id"}, Version: "version"})
	if err != nil {
		log.Fatal(err)
	}
	read := int64(0) // what both have found in the column version
	v, err := t.Update(ctx, db, optimistic.Key(7), read, optimistic.Set{"title": "Locks"}, optimistic.If("state", 1))
	fmt.Println(v, err)

	_, err = t.Update(ctx, db, optimistic.Key(7), read, optimistic.Set{"title": "Bolts"}, optimistic.If("state", 1))
	fmt.Println(err)
	var conflict *optimistic.ConflictError
	if errors.As(err, &conflict) && conflict.Kind == optimistic.Stale {
		fmt.Println("somebody else was quicker: show what is there, and ask again")
	}
	// Output:
	// 1 <nil>
	// optimistic: article id 7: stale: version 0 was expected, and it is 1: read it again
	// somebody else was quicker: show what is there, and ask again
}

// A program reads again by itself.
func ExampleDo() {
	ctx := context.Background()
	pool, db := memory(articleSchema)
	defer pool.Close()

	t, err := optimistic.New(db, optimistic.Table{Name: "article", Key: []string{"id"}, Version: "version"})
	if err != nil {
		log.Fatal(err)
	}
	err = optimistic.Do(ctx, db, sqldb.Policy{}, func(ctx context.Context, tx *sqldb.Tx) error {
		var title string
		var version int64
		if err := tx.QueryRow(ctx, "SELECT title, version FROM article WHERE id = 7").Scan(&title, &version); err != nil {
			return err
		}
		_, err := t.Update(ctx, tx, optimistic.Key(7), version, optimistic.Set{"title": title + ", second edition"})
		return err
	})
	var title string
	fmt.Println(err, pool.QueryRow("SELECT title FROM article").Scan(&title), title)
	// Output: <nil> <nil> draft, second edition
}

// The statement is one's own, or generated.
func ExampleCheck() {
	ctx := context.Background()
	pool, _ := memory(articleSchema)
	defer pool.Close()

	publish := func(version int64) error {
		res, err := pool.ExecContext(ctx, "UPDATE article SET state = 2, version = version + 1 WHERE id = 7 AND version = ?", version)
		if err != nil {
			return err
		}
		return optimistic.Check(res.RowsAffected())
	}
	fmt.Println(publish(0))
	fmt.Println(errors.Is(publish(0), optimistic.ErrConflict))
	// Output:
	// <nil>
	// true
}

// The lock is in one database, what it protects in another one. A holder that was
// stopped for longer than its lease, and does not know that it has lost the lock, is
// refused.
func ExampleFence() {
	ctx := context.Background()
	locks, lockDB := memory("")
	defer locks.Close()
	if err := migrations.Up(ctx, lockDB); err != nil {
		log.Fatal(err)
	}
	ledger, ledgerDB := memory(`CREATE TABLE account (id INTEGER PRIMARY KEY, cents INT NOT NULL, token BIGINT NOT NULL DEFAULT 0);
		INSERT INTO account (id, cents) VALUES (7, 100)`)
	defer ledger.Close()

	accounts, err := optimistic.New(ledgerDB, optimistic.Table{Name: "account", Key: []string{"id"}, Token: "token"})
	if err != nil {
		log.Fatal(err)
	}
	locker, err := sqllock.New(ctx, lockDB)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	pay := func(l *lock.Lock, cents int) error {
		return ledgerDB.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			if err := optimistic.Fence(ctx, tx, accounts, optimistic.Key(7), l.Token()); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE account SET cents = cents + ? WHERE id = 7", cents)
			return err
		})
	}

	stopped, err := locker.Acquire(ctx, "account:7")
	if err != nil {
		log.Fatal(err)
	}
	if err := stopped.Release(ctx); err != nil { // as if its lease had ended meanwhile
		log.Fatal(err)
	}
	holder, err := locker.Acquire(ctx, "account:7")
	if err != nil {
		log.Fatal(err)
	}
	defer holder.Release(ctx)

	fmt.Println(pay(holder, 10))
	fmt.Println(errors.Is(pay(stopped, 1000), optimistic.ErrFenced))
	fmt.Println(pay(holder, 1))
	var cents int
	fmt.Println(ledger.QueryRow("SELECT cents FROM account").Scan(&cents), cents)
	// Output:
	// <nil>
	// true
	// <nil>
	// <nil> 111
}
