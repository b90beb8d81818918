package migrations

import (
	"errors"
	"fmt"
	"time"

	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/sqldb"
)

const (
	defaultLockTimeout = 5 * time.Minute
	defaultDDLTimeout  = 3 * time.Second
)

// Option is an option of [Up], [Down] and [SQL].
type Option func(*options) error

type options struct {
	to          int64
	toSet       bool
	dryRun      func(Step)
	progress    func(Step)
	lockTimeout time.Duration
	ddlTimeout  time.Duration
	place       schema.Place
	used        []string // names of the options that were given
	migrations  []schema.Migration
	locker      func(*run) locker

	before func(Step, int) error // tests: called before each statement, and after the last
}

// Step is one migration that is applied or undone.
type Step struct {
	Version int64
	Name    string
	// Down is set if it is undone.
	Down bool
	// Statements are what is executed, without the one that records the version.
	Statements []string
}

// String names the step: "up 3 claims".
func (s Step) String() string {
	if s.Down {
		return fmt.Sprintf("down %d %s", s.Version, s.Name)
	}
	return fmt.Sprintf("up %d %s", s.Version, s.Name)
}

func option(name string, set func(*options) error) Option {
	return func(o *options) error {
		o.used = append(o.used, name)
		return set(o)
	}
}

// To says at which version to end. Default: Up ends at the last one, Down one
// below the current one. To(0) takes everything away.
func To(version int64) Option {
	return option("To", func(o *options) error {
		o.to, o.toSet = version, true
		return nil
	})
}

// DryRun calls f with each step that would be taken, in order, and changes
// nothing. It takes no lock: another process may be about to take those steps.
func DryRun(f func(Step)) Option {
	return option("DryRun", func(o *options) error {
		o.dryRun = f
		return notNil("DryRun", f)
	})
}

// Progress calls f when a step begins, from the goroutine that called Up or Down.
// A step that is tried again begins again.
func Progress(f func(Step)) Option {
	return option("Progress", func(o *options) error {
		o.progress = f
		return notNil("Progress", f)
	})
}

func notNil(name string, f func(Step)) error {
	if f == nil {
		return fmt.Errorf("%s: the function is nil", name)
	}
	return nil
}

// LockTimeout says how long to wait in all: for a connection, for another process
// that migrates, and for tables that are in use. The time that the migrations
// themselves take does not count. Default: 5 minutes. When it has passed, the error
// wraps [ErrLockTimeout], or [ErrDDLTimeout] where it was a table.
func LockTimeout(d time.Duration) Option {
	return option("LockTimeout", func(o *options) error {
		o.lockTimeout = d
		return positive("LockTimeout", d)
	})
}

// DDLTimeout says how long one statement may wait for a lock on a table at a time,
// while everybody else who wants that table queues behind it. Default: 3 seconds, and
// never more than is left of [LockTimeout]; whole seconds on MySQL and MariaDB,
// rounded up. The migration is then rolled back, and tried again after a pause of
// about that length, in which the others get through, until LockTimeout has passed.
// SQLite has no locks on tables: there it is only the pause after a commit that
// readers have kept from the file.
func DDLTimeout(d time.Duration) Option {
	return option("DDLTimeout", func(o *options) error {
		o.ddlTimeout = d
		return positive("DDLTimeout", d)
	})
}

func positive(name string, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%s(%v): it must be more than 0", name, d)
	}
	return nil
}

// Schema is an option of [SQL]: the schema (MySQL and MariaDB: database) that
// stands in front of the names. Default: none. Up and Down take it from the DB.
func Schema(name string) Option {
	return option("Schema", func(o *options) error {
		o.place.Schema = name
		return nil
	})
}

// TablePrefix is an option of [SQL]: what stands in front of the tables' names.
// Default: "sqllock_". Up and Down take it from the DB.
func TablePrefix(prefix string) Option {
	return option("TablePrefix", func(o *options) error {
		o.place.Prefix = prefix
		return nil
	})
}

// collect applies options, and refuses those that are not for the function.
func collect(kind sqldb.Kind, fn string, opts []Option) (*options, error) {
	o := &options{
		lockTimeout: defaultLockTimeout,
		ddlTimeout:  defaultDDLTimeout,
		locker:      newLocker,
		place:       schema.Place{Kind: kind, Prefix: sqldb.DefaultTablePrefix},
	}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("migrations: an option is nil")
		}
		if err := opt(o); err != nil {
			return nil, fmt.Errorf("migrations: option %w", err)
		}
	}
	for _, name := range o.used {
		forSQL := name == "Schema" || name == "TablePrefix"
		if name != "To" && forSQL != (fn == "SQL") {
			return nil, fmt.Errorf("migrations: option %s is not one of %s", name, fn)
		}
	}
	if err := o.place.Check(); err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	if o.migrations == nil {
		o.migrations = schema.Migrations(kind)
	}
	last := o.latest()
	lowest := int64(1)
	if fn == "Down" {
		lowest, last = 0, last-1
	}
	if o.toSet && (o.to < lowest || o.to > last) {
		return nil, fmt.Errorf("migrations: option To(%d): the version for %s is between %d and %d", o.to, fn, lowest, last)
	}
	if !o.toSet {
		o.to = last
	}
	return o, nil
}

func (o *options) latest() int64 { return o.migrations[len(o.migrations)-1].Version }

// step is a migration as it is executed at a place.
func step(p schema.Place, m schema.Migration, down bool) Step {
	s := Step{Version: m.Version, Name: m.Name, Down: down}
	statements := m.Up
	if down {
		statements = m.Down
	}
	for _, text := range statements {
		s.Statements = append(s.Statements, p.Render(text))
	}
	return s
}
