package main

import (
	"context"
	"errors"
	"fmt"
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
type place = cli.Place

func (s *session) place() place { return cli.PlaceOf(s.db) }

// absent says what becomes of a command on an SQLite file that is not there.
type absent uint8

const (
	refuse absent = iota // an empty file must not be made of a mistyped name
	empty                // it answers as if the file were there, and empty
	create               // it makes the file
)

// connected makes the RunE of a command that needs the database.
func (a *app) connected(file absent, f func(ctx context.Context, s *session) error) func(*cobra.Command, []string) error {
	return a.body(func(cmd *cobra.Command, _ []string) error {
		return a.withDB(cmd.Context(), file, f)
	})
}

func (a *app) withDB(ctx context.Context, file absent, f func(ctx context.Context, s *session) error) error {
	d, err := a.parseDSN()
	if err != nil {
		return err
	}
	if err := a.where.CheckSchema(d.Kind()); err != nil {
		return err
	}
	if file != create && d.Absent() {
		if file == refuse {
			return fmt.Errorf("the file %s does not exist: \"sqllock-migrate up\" makes it", d.File())
		}
		a.out.Say("the file %s does not exist: \"sqllock-migrate up\" makes it", d.File())
		if d, err = dsn.Parse("sqlite::memory:"); err != nil {
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
	d.SetAnswerTimeout(max(a.lockTimeout, shortestAnswer))
	db, closePool, err := d.Open(in.Soft(), a.where.Options()...)
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

// shortestAnswer is what a server has to answer in the first time, however short
// the patience with locks is: that is no lock, and connecting takes its time.
const shortestAnswer = time.Second

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
