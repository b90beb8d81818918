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
	// release. The errors that wrap it have the two versions as their text and leave
	// what is to be done to who says what it is about.
	ErrNotMigrated = errors.New("the tables are not there or too old")
	// ErrTooNew says that the database has tables that this program no longer
	// understands.
	ErrTooNew = errors.New("the tables of sqllock are too new for this program: use the release that they were made with, or a later one")
	// ErrForeign says that a table or an index of a name that is needed is not as
	// sqllock makes it: it is somebody else's, or has been changed.
	ErrForeign = errors.New("it is not sqllock's")
)

// Foreign is the error for a table or an index that is in the way; what is as in
// "table jobs".
func Foreign(what, detail string) error {
	if detail != "" {
		detail = " (" + detail + ")"
	}
	return &textError{fmt.Sprintf("%s is there already and is not sqllock's%s: choose another --table-prefix (in a program: sqldb.TablePrefix)", what, detail), ErrForeign}
}

// Altered is the error for a table that is not to be dropped.
func Altered(table, detail string) error {
	return &textError{fmt.Sprintf("table %s is not as sqllock made it (%s), and is not dropped: look at it, drop it yourself if nobody needs it, and run this again", table, detail), ErrForeign}
}

// ForeignOf is the error of Foreign or Altered in err, without what was said around
// it; nil if there is none.
func ForeignOf(err error) error {
	var text *textError
	if errors.As(err, &text) && text.is == ErrForeign {
		return text
	}
	return nil
}

// textError is an error with a text of its own.
type textError struct {
	text string
	is   error
}

func (e *textError) Error() string { return e.text }
func (e *textError) Unwrap() error { return e.is }

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
		return &textError{fmt.Sprintf("they have version %d, and this program needs version %d", v, latest), ErrNotMigrated}
	}
	return nil
}

// Read reads what has been applied, in one statement that writes nothing and
// waits for no migration. No table of versions is no error.
func Read(ctx context.Context, db *sqldb.DB) (State, error) {
	rows, err := db.Query(ctx, PlaceOf(db).Applied())
	if err != nil {
		return State{}, PlaceOf(db).ReadError(err)
	}
	defer func() { _ = rows.Close() }()
	var s State
	for rows.Next() {
		var a Applied
		if err := rows.Scan(&a.Version, &a.Compatible, &a.Name, &a.At); err != nil {
			return State{}, PlaceOf(db).ReadError(err)
		}
		s.Applied = append(s.Applied, a)
	}
	if err := rows.Err(); err != nil {
		return State{}, PlaceOf(db).ReadError(err)
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

// ReadError is what reading the table of versions has failed with, for people; nil
// if there is no such table.
func (p Place) ReadError(err error) error {
	switch {
	case err == nil || Missing(err):
		return nil
	case sqldb.ClassOf(err) == sqldb.NoColumn:
		return Foreign("table "+p.Prefix+VersionTable, "")
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
