package chaos_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
	"github.com/sqlnative/locks/sqllock"
)

// workerEnv makes of the test binary one of the processes. What it has to do comes through its standard input, where
// nobody else sees the password; when that ends, so does the process.
const workerEnv = "CHAOS_WORKER"

const (
	ttl        = 700 * time.Millisecond
	goroutines = 4
	// stalls is how many increments there are for one in which the process stops itself between reading and writing.
	stalls = 12
)

type task struct {
	Kind, DSN string
	Guard     bool
}

// What a worker says, one line for each: the word and the increment's name. An increment that was begun, and of which
// nothing more is heard, is as uncertain as one of which no verdict came.
const (
	begun     = "begun"
	done      = "done"
	failed    = "failed"    // nothing was changed
	uncertain = "uncertain" // nobody knows
	stalled   = "stalled"   // the process stops itself: somebody has to let it go on
	older     = "older"     // a token was used after a newer one
)

func say(word string, id any) { fmt.Fprintf(os.Stdout, "%s %v\n", word, id) }

// work is one process.
func work() error {
	in := json.NewDecoder(os.Stdin)
	var t task
	if err := in.Decode(&t); err != nil {
		return err
	}
	ctx := context.Background()
	var db *sqldb.DB
	var l *sqllock.Locker
	var err error
	for begun := time.Now(); l == nil; { // it may start while the server is gone
		if db == nil {
			db, err = dial(ctx, t)
		}
		if err == nil {
			l, err = sqllock.New(ctx, db, lock.TTL(ttl))
		}
		if err != nil && time.Since(begun) > time.Minute {
			return err
		}
		if l == nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
	var stop atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop.Store(true)
	}()
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for n := 0; !stop.Load(); n++ {
				id := fmt.Sprintf("%d-%d-%d", os.Getpid(), g, n)
				if !increment(ctx, db, l, t.Guard, id) {
					time.Sleep(rand.N(40 * time.Millisecond))
				}
			}
		})
	}
	wg.Wait()
	_ = l.Close() // a lock that could not be released is left to its TTL
	return nil
}

// increment does one increment as a program would that ignores its ctx: nothing but the guard keeps it from writing
// when its lock is lost.
func increment(ctx context.Context, db *sqldb.DB, locker lock.Locker, guard bool, id string) bool {
	l, err := locker.Acquire(ctx, "chaos", lock.Wait(3*time.Second))
	if err != nil {
		return false
	}
	defer func() { _ = l.Release(ctx) }()
	say(begun, id)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	late := false
	var o sqldb.TxOptions
	if !guard { // MariaDB's REPEATABLE READ would find out by itself, by innodb_snapshot_isolation
		o.Isolation = sql.LevelReadCommitted
	}
	err = db.InTx(ctx, o, func(ctx context.Context, tx *sqldb.Tx) error {
		if guard {
			if err := l.Guard(ctx, tx); err != nil {
				return err
			}
		}
		var n int64
		if err := tx.QueryRow(ctx, "SELECT n FROM counter").Scan(&n); err != nil {
			return err
		}
		if rand.N(stalls) == 0 {
			say(stalled, id)
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf("UPDATE counter SET n = %d", n+1)); err != nil {
			return err
		}
		res, err := tx.Exec(ctx, fmt.Sprintf("UPDATE fence SET token = %d WHERE token < %d", l.Token(), l.Token()))
		if err != nil {
			return err
		}
		late = res.RowsAffected == 0
		if guard && rand.N(3) == 0 {
			return l.ReleaseIn(ctx, tx)
		}
		return nil
	})
	switch {
	case sqldb.Uncertain(err):
		say(uncertain, id)
	case err != nil:
		say(failed, id)
	default:
		say(done, id)
		if late {
			say(older, id)
		}
	}
	return err == nil
}

// dial opens a pool that lives as long as the process.
func dial(ctx context.Context, t task) (*sqldb.DB, error) {
	if t.Kind == sqldb.Postgres.String() {
		cfg, err := pgxpool.ParseConfig(t.DSN)
		if err != nil {
			return nil, err
		}
		cfg.MaxConns = 8
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return pgdb.New(ctx, pool)
	}
	driver, adapt := "mysql", mysqldb.New
	if t.Kind == sqldb.SQLite.String() {
		driver, adapt = "sqlite", sqlitedb.New
	}
	pool, err := sql.Open(driver, t.DSN)
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(8)
	return adapt(ctx, pool)
}
