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
	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
)

// session is a command that is connected to its database.
type session struct {
	*app
	db *sqldb.DB
	in *cli.Interrupts
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

// connected makes the RunE of a command that needs the database. create says that
// an SQLite file may be made.
func (a *app) connected(create bool, f func(ctx context.Context, s *session) error) func(*cobra.Command, []string) error {
	return a.body(func(cmd *cobra.Command, _ []string) error {
		return a.withDB(cmd.Context(), create, f)
	})
}

func (a *app) withDB(ctx context.Context, create bool, f func(ctx context.Context, s *session) error) error {
	d, err := a.parseDSN()
	if err != nil {
		return err
	}
	if !create {
		if err := fileExists(d); err != nil {
			return err
		}
	}
	in := cli.CatchInterrupts(ctx,
		func() {
			a.out.Say("stopping as soon as what is running has ended; once more, and it is aborted")
		},
		func() { a.out.Say("aborting") })
	defer in.Close()
	d.SetBusyTimeout(min(a.lockTimeout, 5*time.Second))
	db, closePool, err := d.Open(in.Soft(), a.options()...)
	if err != nil {
		return a.verdict(in, err)
	}
	defer func() {
		if !in.Aborted() { // a pool waits for connections that are at work
			_ = closePool()
		}
	}()
	return a.verdict(in, f(in.Soft(), &session{app: a, db: db, in: in}))
}

// fileExists keeps a command that only looks from making an empty file of a
// mistyped name.
func fileExists(d *dsn.DSN) error {
	if d.File() == "" {
		return nil
	}
	if _, err := os.Stat(d.File()); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the file %s does not exist: \"sqllock-migrate up\" makes it", d.File())
	}
	return nil
}

// verdict gives an error its exit code, and says what a signal has done.
func (a *app) verdict(in *cli.Interrupts, err error) error {
	var exit *cli.ExitError
	switch {
	case err == nil || errors.As(err, &exit):
		return err
	case in.Aborted():
		return errors.New("aborted: what was running may be applied or not; \"sqllock-migrate status\" tells")
	case in.Stopped() && errors.Is(err, context.Canceled):
		return errors.New("stopped by a signal; the same command goes on from here")
	case errors.Is(err, migrations.ErrLockTimeout), errors.Is(err, migrations.ErrDDLTimeout):
		return cli.Exit(cli.LockTimeout, err)
	}
	return err
}

// untilAborted runs f, which ends by itself after what is running when ctx ends,
// and leaves it behind when the command is aborted. The process is about to end
// then, and its connections with it.
func (s *session) untilAborted(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-s.in.Hard().Done():
		return context.Cause(s.in.Hard())
	}
}

// latest is the version that this program brings tables to.
const latest = schema.Latest
