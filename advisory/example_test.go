package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb/pgdb"
)

func ExampleNew() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@db.internal/shop")
	check(err)
	db, err := pgdb.New(ctx, pool) // mysqldb.New for MySQL and MariaDB
	check(err)
	locker, err := advisory.New(ctx, db, lock.TTL(10*time.Second))
	check(err)
	defer func() { _ = locker.Close() }()

	// The function's ctx ends if the lock is lost.
	err = lock.Do(ctx, locker, "order:42", func(ctx context.Context, _ *lock.Lock) error { return ship(ctx, 42) })
	check(err)
	err = lock.Do(ctx, locker, "report", func(context.Context, *lock.Lock) error { return nil }, lock.Try())
	if errors.Is(err, lock.ErrHeld) {
		fmt.Println(err) // who holds it: the connection, where it comes from
	}
}

// Readers together, a writer alone: on PostgreSQL.
func ExampleLocker_Acquire_shared() {
	var locker *advisory.Locker // advisory.New
	l, err := locker.Acquire(context.Background(), "catalog", lock.Shared())
	check(err)
	defer func() { _ = l.Release(context.Background()) }()
}

// The lock of a program that calls pg_advisory_lock(42) itself.
func ExampleLocker_AcquireKey() {
	var locker *advisory.Locker // advisory.New
	l, err := locker.AcquireKey(context.Background(), advisory.Int64(42), lock.Wait(time.Second))
	check(err)
	defer func() { _ = l.Release(context.Background()) }()
}

func ship(context.Context, int) error { return nil }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
