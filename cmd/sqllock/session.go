package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/internal/dsn"
	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// session is a command that is connected to its database.
type session struct {
	*app
	db     *sqldb.DB
	dsn    *dsn.DSN
	own    bool // the database is the SQLite file of this user
	close  func() error
	locker *sqllock.Locker
	jobs   *joblock.Jobs
}

// place is what every result about a live database begins with.
type place = cli.Place

func (s *session) place() place { return cli.PlaceOf(s.db) }

// parseDSN reads the DSN from the flag or the environment; without one it is that of
// the user's own file.
func (a *app) parseDSN() (d *dsn.DSN, own bool, err error) {
	if d, err = a.where.Parse(); err != nil {
		return nil, false, usagef("%w", err)
	}
	if d == nil {
		own = true
		if d, err = a.stateDSN(); err != nil {
			return nil, false, err
		}
	}
	a.out.Hide(d.Scrubber())
	if err := a.where.CheckSchema(d.Kind()); err != nil {
		return nil, false, usagef("%w", err)
	}
	if file := d.File(); file != "" {
		if err := checkFileSystem(file); err != nil {
			return nil, false, err
		}
	}
	return d, own, nil
}

// connect opens the database, with at most conns connections.
func (a *app) connect(ctx context.Context, conns int) (*session, error) {
	d, own, err := a.parseDSN()
	if err != nil {
		return nil, err
	}
	return a.open(ctx, d, own, conns)
}

func (a *app) open(ctx context.Context, d *dsn.DSN, own bool, conns int) (*session, error) {
	if d.Absent() && !own && !a.migrate {
		// An empty file must not be made of a mistyped name.
		return nil, fmt.Errorf("the file %s does not exist: --migrate makes it", d.File())
	}
	d.SetMaxConns(conns)
	db, closePool, err := d.Open(ctx, a.where.Options()...)
	switch {
	case err != nil && own && ctx.Err() == nil:
		return nil, fmt.Errorf("%w; --dsn and %s name another database", err, envDSN)
	case err != nil:
		return nil, err
	}
	return &session{app: a, db: db, dsn: d, own: own, close: closePool}, nil
}

// withTables makes the locker, and the tables where that is wanted; where it is not,
// and they are missing, the error says what to do.
func (s *session) withTables(ctx context.Context) error {
	if s.migrate {
		if err := migrations.Up(ctx, s.db); err != nil {
			return err
		}
	}
	locker, err := sqllock.New(ctx, s.db, sqllock.ShowWaiters())
	switch {
	case err == nil:
	case !errors.Is(err, lock.ErrNotMigrated):
		return err
	case !s.own:
		return fmt.Errorf("%s: %w; here: run this with --migrate, by a user who may make tables", s.dsn, err)
	default:
		if err := migrations.Up(ctx, s.db); err != nil {
			return err
		}
		if locker, err = sqllock.New(ctx, s.db, sqllock.ShowWaiters()); err != nil {
			return err
		}
	}
	s.locker = locker
	return nil
}

// leaveBound is how long a command waits at its end for connections that are at work.
const leaveBound = time.Second

// leave closes what is open. A pool waits for connections that are at work, which a
// command that ends need not.
func (s *session) leave() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if s.locker != nil {
			_ = s.locker.Close()
		}
		_ = s.close()
	}()
	select {
	case <-done:
	case <-time.After(leaveBound):
	}
}

// connected makes the RunE of a command that needs the database and its tables.
func (a *app) connected(f func(ctx context.Context, s *session, args []string) error) func(*cobra.Command, []string) error {
	return a.body(func(cmd *cobra.Command, args []string) error {
		return a.interruptible(cmd.Context(), func(ctx context.Context) error {
			s, err := a.connect(ctx, 2)
			if err != nil {
				return err
			}
			defer s.leave()
			if err := s.withTables(ctx); err != nil {
				return err
			}
			if s.jobs, err = joblock.New(ctx, s.db, s.locker); err != nil {
				return err
			}
			return f(ctx, s, args)
		})
	})
}

// interruptible runs f under a ctx that Ctrl-C and SIGTERM end.
func (a *app) interruptible(ctx context.Context, f func(ctx context.Context) error) error {
	in := cli.CatchInterrupts(ctx, nil, nil)
	defer in.Close()
	err := f(in.Soft())
	if err != nil && in.Stopped() && errors.Is(err, context.Canceled) {
		return errors.New("stopped by a signal")
	}
	return err
}

// lockNames are the locks that a name on the command line may mean: that of the job,
// and the plain one.
func lockNames(name string) []string { return []string{joblock.LockName(name), name} }

// checkJob says why a name can't be that of a job or a lock.
func checkJob(name string) error { return joblock.Job{Name: name}.Check() }
