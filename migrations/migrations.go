package migrations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/sqldb"
)

var (
	// ErrLockTimeout says that another process was migrating for all of
	// [LockTimeout], or that no connection could be had. On SQLite it is also any
	// other program that writes.
	ErrLockTimeout = errors.New("another process is migrating")
	// ErrDDLTimeout says that a transaction of somebody else's kept a lock on a table
	// for all of [LockTimeout].
	ErrDDLTimeout = errors.New("a table is in use by a transaction that does not end")
	// ErrTooNew says that the tables are of a release that this program does not
	// understand.
	ErrTooNew = schema.ErrTooNew
	// ErrForeign says that a table or an index of a name that is needed is not as
	// sqllock makes it: it is somebody else's, or has been changed.
	ErrForeign = schema.ErrForeign
)

// Up makes the tables of sqllock, or brings them to the latest version. It is safe
// to call from many processes at once, and returns nil when there is nothing to do.
// On PostgreSQL it also makes the schema if there is none.
//
// The error names the migration and the statement that failed; migrations before
// it stay, and the next Up goes on from there. It wraps [ErrLockTimeout],
// [ErrDDLTimeout], [ErrTooNew], [ErrForeign] or ctx's error where that was the
// reason.
//
// A table that is there already, and is not recorded as made, is taken for ours only
// if it is what is needed, as one is that an Up on MySQL left when it was broken off.
// Up looks at all of them before it changes anything, and at each one again before
// and after its step; one that differs, or an index of that name on another table,
// is refused with ErrForeign, and its step is not recorded.
func Up(ctx context.Context, db *sqldb.DB, opts ...Option) error {
	if db == nil {
		return errNoDB
	}
	o, err := collect(db.Kind(), "Up", opts)
	if err != nil {
		return err
	}
	if o.dryRun != nil {
		return dry(ctx, db, o, false)
	}
	return start(db, o, false).do(ctx, func(ctx context.Context, p *goose.Provider) error {
		_, err := p.UpTo(ctx, o.to)
		return err
	})
}

// Down undoes the last migration, and with To(v) all above v. Its tables go, with
// what is in them; with the first migration goes the table of versions too. A
// schema that Up has made stays. It returns nil when there is nothing to undo.
// Programs that use the tables must not run meanwhile.
//
// A table that differs from what its migration made is not dropped: before anything
// is undone, Down looks at all that would go, and refuses with [ErrForeign]. One that
// is not there any more is no reason to.
//
// Its errors are those of [Up].
func Down(ctx context.Context, db *sqldb.DB, opts ...Option) error {
	if db == nil {
		return errNoDB
	}
	o, err := collect(db.Kind(), "Down", opts)
	if err != nil {
		return err
	}
	if o.dryRun != nil {
		return dry(ctx, db, o, true)
	}
	return start(db, o, true).do(ctx, func(ctx context.Context, p *goose.Provider) error {
		if o.toSet {
			_, err := p.DownTo(ctx, o.to)
			return err
		}
		_, err := p.Down(ctx)
		if errors.Is(err, goose.ErrNoNextVersion) {
			return nil
		}
		return err
	})
}

// State is what is known of one migration.
type State struct {
	Version int64
	Name    string
	// Applied says that the database has it, AppliedAt since when by the database's
	// clock, in UTC.
	Applied   bool
	AppliedAt time.Time
	// Known says that this program has it. One that is not known was applied by a
	// later release.
	Known bool
}

// Status tells what has been applied and what has not, in the order of versions.
// It only reads: it makes no table, takes no lock and waits for none, so it answers
// while another process migrates, and on a server that does not write.
func Status(ctx context.Context, db *sqldb.DB) ([]State, error) {
	s, err := read(ctx, db)
	if err != nil {
		return nil, err
	}
	var states []State
	for _, m := range schema.Migrations(db.Kind()) {
		states = append(states, State{Version: m.Version, Name: m.Name, Known: true})
	}
	for _, a := range s.Applied {
		if a.Version >= 1 && a.Version <= int64(len(states)) {
			states[a.Version-1].Applied, states[a.Version-1].AppliedAt = true, a.At
			continue
		}
		states = append(states, State{Version: a.Version, Name: a.Name, Applied: true, AppliedAt: a.At})
	}
	return states, nil
}

// Version is the version that the tables have, 0 if there are none. It only reads,
// as [Status] does.
func Version(ctx context.Context, db *sqldb.DB) (int64, error) {
	s, err := read(ctx, db)
	return s.Version(), err
}

var errNoDB = errors.New("migrations: the *sqldb.DB is nil")

func read(ctx context.Context, db *sqldb.DB) (schema.State, error) {
	if db == nil {
		return schema.State{}, errNoDB
	}
	s, err := schema.Read(ctx, db)
	if err != nil {
		err = fmt.Errorf("migrations: %w", err)
	}
	return s, err
}
