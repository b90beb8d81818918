package joblock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"

	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// Jobs are the jobs of one database. It is safe for concurrent use.
type Jobs struct {
	db      *sqldb.DB
	locker  lock.Locker
	sql     statements
	host    string
	address string
	// noHold: the Locker cannot HoldAtLeast; then the job's row tells how long ago the
	// last start was.
	noHold atomic.Bool
}

// New returns the jobs of db, locked by locker: sqllock.New, advisory.New, or any
// other. It asks the database once whether the tables are there; if not, the error is
// [lock.ErrNotMigrated]. Jobs owns neither: both have to outlive it, and are to be
// closed by whoever made them.
func New(ctx context.Context, db *sqldb.DB, locker lock.Locker) (*Jobs, error) {
	switch {
	case db == nil:
		return nil, fmt.Errorf("%w: joblock.New: the database is nil", lock.ErrInvalid)
	case locker == nil:
		return nil, fmt.Errorf("%w: joblock.New: the Locker is nil", lock.ErrInvalid)
	}
	if err := schema.Ready(ctx, db); err != nil {
		if errors.Is(err, schema.ErrNotMigrated) {
			return nil, fmt.Errorf("%w: %w", lock.ErrNotMigrated, err)
		}
		return nil, fmt.Errorf("joblock: %w", err)
	}
	host, _ := os.Hostname() // for people: none is no error
	return &Jobs{db: db, locker: locker, sql: statementsFor(db), host: clean(host, schema.MaxHost), address: address()}, nil
}

// address is an address of this machine that others may know it by: the first that is
// no loopback's. Nothing is sent to find it out.
func address() string {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
			return ip.IP.String()
		}
	}
	return ""
}

// clean makes of a text one that every database takes, of at most n characters.
func clean(s string, n int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}

// Disable switches a job off, everywhere, from its next fire on: what runs goes on.
// note says why, and who has done it. The job need not have run before.
func (j *Jobs) Disable(ctx context.Context, name, note string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := checkNote(note); err != nil {
		return fmt.Errorf("%w: job %q: %w", lock.ErrInvalid, name, err)
	}
	if err := j.make(ctx, name); err != nil {
		return err
	}
	return j.change(ctx, "disable job "+name, name, j.sql.disable, values{"name": j.text(name), "note": orNull(note)})
}

// Enable switches a job on again. One that is on, or that is not there, stays so.
func (j *Jobs) Enable(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	return j.change(ctx, "enable job "+name, name, j.sql.enable, values{"name": j.text(name)})
}

// make makes the job's row, if it is missing.
func (j *Jobs) make(ctx context.Context, name string) error {
	return j.change(ctx, "first touch of job "+name, name, j.sql.make, values{"name": j.text(name)})
}

// change runs one statement that can be repeated. A row that is there already is as
// good.
func (j *Jobs) change(ctx context.Context, op, name string, st stmt, v values) error {
	err := sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) error {
		_, err := j.db.Change(ctx, sqldb.Change{Op: op, Query: st.query, Args: st.args(v)})
		return err
	})
	if err != nil && sqldb.ClassOf(err) != sqldb.Duplicate {
		return explain(name, err)
	}
	return nil
}

// text is a name or an id as the column wants it: bytes where it is VARBINARY.
func (j *Jobs) text(s string) any {
	switch {
	case s == "":
		return nil
	case j.db.Kind().InnoDB():
		return []byte(s)
	}
	return s
}

// orNull is a text for people, NULL if there is none.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// explain says which job an error is about, and what to do.
func explain(name string, err error) error {
	switch sqldb.ClassOf(err) {
	case sqldb.NoTable, sqldb.NoColumn, sqldb.NoSchema:
		return fmt.Errorf("%w: job %q: %w", lock.ErrNotMigrated, name, err)
	}
	return fmt.Errorf("joblock: %q: %w", name, err)
}
