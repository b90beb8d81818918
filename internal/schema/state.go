package schema

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

var (
	// ErrNotMigrated says that the database lacks tables, or has those of an older
	// release.
	ErrNotMigrated = errors.New("the tables of sqllock are not there or too old: run \"sqllock-migrate up\" or migrations.Up")
	// ErrTooNew says that the database has tables that this program no longer
	// understands.
	ErrTooNew = errors.New("the tables of sqllock are too new for this program: use the release that they were made with, or a later one")
)

// Applied is one row of the table of versions.
type Applied struct {
	Version    int64
	Compatible int64
	Name       string
	At         time.Time
}

// State is what has been applied to a database.
type State struct {
	// Applied are the rows of the table of versions, in ascending order. It is
	// empty where there is no such table.
	Applied []Applied
}

// Version is the last version up to which nothing is missing; 0 if there is none.
func (s State) Version() int64 {
	var v int64
	for _, a := range s.Applied {
		if a.Version == v+1 {
			v = a.Version
		}
	}
	return v
}

// Compatible is the version that a program must have been made for at least.
func (s State) Compatible() int64 {
	var c int64
	for _, a := range s.Applied {
		c = max(c, a.Compatible)
	}
	return c
}

// Has reports whether a version has been applied.
func (s State) Has(version int64) bool {
	for _, a := range s.Applied {
		if a.Version == version {
			return true
		}
	}
	return false
}

// Supported says why a program made for the version [Latest] cannot work with the
// database: ErrNotMigrated, ErrTooNew, both with the versions. It is nil where it
// can; a later version is fine as long as it calls itself compatible.
func (s State) Supported() error { return s.supported(Latest) }

func (s State) supported(latest int64) error {
	if c := s.Compatible(); c > latest {
		return fmt.Errorf("%w (they have version %d, for programs made for version %d or later; this one was made for %d)", ErrTooNew, s.Version(), c, latest)
	}
	if v := s.Version(); v < latest {
		return fmt.Errorf("%w (they have version %d; this program needs %d)", ErrNotMigrated, v, latest)
	}
	return nil
}

// Read reads what has been applied, in one statement that writes nothing and
// waits for no migration. No table of versions is no error.
func Read(ctx context.Context, db *sqldb.DB) (State, error) {
	rows, err := db.Query(ctx, PlaceOf(db).Applied())
	if err != nil {
		return State{}, readError(err)
	}
	defer func() { _ = rows.Close() }()
	var s State
	for rows.Next() {
		var a Applied
		if err := rows.Scan(&a.Version, &a.Compatible, &a.Name, &a.At); err != nil {
			return State{}, readError(err)
		}
		s.Applied = append(s.Applied, a)
	}
	if err := rows.Err(); err != nil {
		return State{}, readError(err)
	}
	return s, nil
}

// Missing reports whether err says that the table of versions, or the place for
// it, does not exist.
func Missing(err error) bool {
	switch sqldb.ClassOf(err) {
	case sqldb.NoTable, sqldb.NoSchema:
		return true
	}
	return false
}

func readError(err error) error {
	if Missing(err) {
		return nil
	}
	return fmt.Errorf("reading which migrations have been applied: %w", err)
}

// Ready says why db cannot be used by this program: an error that wraps
// ErrNotMigrated or ErrTooNew, or that of reading. It costs one statement.
func Ready(ctx context.Context, db *sqldb.DB) error {
	s, err := Read(ctx, db)
	if err != nil {
		return err
	}
	return s.Supported()
}
