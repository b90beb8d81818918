// Command leader shows an election: three programs of which one leads. Each leader is
// shut down after a while, and the next takes over soon; it does not have to wait until
// a lease has run out.
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
	"time"

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
	dir, err := os.MkdirTemp("", "leader")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	pool, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "leader.db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
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

	ctx, stop := context.WithCancel(ctx)
	defer stop()                             // an error of one ends the others
	elected := make(chan context.CancelFunc) // who leads says how to shut it down
	ended := make(chan error)
	const programs = 3
	for range programs {
		go func() { ended <- program(ctx, db, elected) }()
	}
	for n := range programs {
		select {
		case shutdown := <-elected:
			fmt.Fprintf(out, "leader %d leads\n", n+1)
			shutdown() // SIGTERM
			err = errors.Join(err, <-ended)
		case e := <-ended:
			return fmt.Errorf("a program has ended without having led: %w", e)
		}
	}
	fmt.Fprintln(out, "nobody is left")
	return err
}

// program is what runs on each machine.
func program(ctx context.Context, db *sqldb.DB, elected chan<- context.CancelFunc) (err error) {
	locker, err := sqllock.New(ctx, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close()) }()
	e, err := lock.NewElection(locker, "scheduler", lock.TTL(10*time.Second))
	if err != nil {
		return err
	}
	ctx, shutdown := context.WithCancel(ctx) // signal.NotifyContext in a real program
	defer shutdown()
	err = e.Run(ctx, func(ctx context.Context, l *lock.Lock) error {
		select {
		case elected <- shutdown:
		case <-ctx.Done():
		}
		<-ctx.Done() // what only the leader does; ctx ends with the leadership
		return nil
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
