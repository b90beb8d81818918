package main

import (
	"context"
	"errors"
	"fmt"
	"os"
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
type place struct {
	Database    string `json:"database"`
	Schema      string `json:"schema"`
	TablePrefix string `json:"table_prefix"`
}

func (s *session) place() place {
	return place{Database: s.db.Kind().String(), Schema: s.db.Schema(), TablePrefix: s.db.TablePrefix()}
}

// parseDSN reads the DSN from the flag or the environment; without one it is that of
// the user's own file.
func (a *app) parseDSN() (d *dsn.DSN, own bool, err error) {
	s, from := a.dsn, "--dsn"
	if s == "" {
		s, from = os.Getenv(envDSN), envDSN
	}
	if s == "" {
		if d, err = a.stateDSN(); err != nil {
			return nil, false, err
		}
	} else if d, err = dsn.Parse(s); err != nil {
		return nil, false, usagef("%s: %w", from, err)
	}
	a.out.Hide(d.Scrubber())
	if d.Kind() == sqldb.SQLite && a.schema != "" && a.schema != "main" {
		return nil, false, usagef("--schema %s: SQLite has its tables in main: leave --schema out", a.schema)
	}
	if file := d.File(); file != "" {
		if err := checkFileSystem(file); err != nil {
			return nil, false, err
		}
	}
	return d, s == "", nil
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
	opts := []sqldb.Option{sqldb.TablePrefix(a.prefix)}
	if a.schema != "" {
		opts = append(opts, sqldb.Schema(a.schema))
	}
	db, closePool, err := d.Open(ctx, opts...)
	if err != nil {
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
	locker, err := sqllock.New(ctx, s.db)
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
		if locker, err = sqllock.New(ctx, s.db); err != nil {
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
func checkJob(name string) error {
	if err := lock.CheckName(name); err != nil {
		return err
	}
	if n := len(joblock.LockName(name)); n > lock.MaxName {
		return fmt.Errorf("the name %.20q... is too long: the name of the job's lock has %d bytes, more than %d", name, n, lock.MaxName)
	}
	return nil
}
