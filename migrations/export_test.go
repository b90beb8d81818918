package migrations

import (
	"context"
	"database/sql"

	"github.com/sqlnative/locks/internal/schema"
)

// Before calls f before each statement, and after the last one, and fails there
// with what f returns.
func Before(f func(s Step, statement int) error) Option {
	return func(o *options) error { o.before = f; return nil }
}

// Unlocked is the negative control: nobody is kept out.
func Unlocked() Option {
	return func(o *options) error {
		o.locker = func(r *run) locker { return noLocker{newLocker(r), r} }
		return nil
	}
}

type noLocker struct {
	locker
	r *run
}

func (n noLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	if err := n.r.locked(); err != nil {
		return err
	}
	return n.r.prepare(ctx, conn)
}
func (n noLocker) SessionUnlock(context.Context, *sql.Conn) error { return nil }
func (n noLocker) begin(context.Context, *sql.Tx, Step) (bool, error) {
	return false, nil
}

// With has other migrations in place of those of the schema.
func With(m ...schema.Migration) Option {
	return func(o *options) error { o.migrations = m; return nil }
}
