package advisory

import (
	"context"
	"strings"

	"github.com/sqlnative/locks/lock"
)

// List is who holds advisory locks and who waits for them in the server, this process
// or another, by name: on PostgreSQL in the database, on MySQL and MariaDB on the whole
// server. Names are hashes there. Those that this Locker holds or waits for are known,
// and so are names that are given; what is not known has only its Key.
//
// PostgreSQL shows everything, but where the sessions of other users come from only to
// who has the rights of pg_read_all_stats. MySQL shows everything to who may read
// performance_schema.metadata_locks; MariaDB too, if performance_schema is on with its
// instrument wait/lock/metadata/sql/mdl, or if the plugin metadata_lock_info is there.
// Otherwise only the locks whose names are known are listed, and who waits for them
// only if this user has the right PROCESS; if no names are known either, the error wraps
// [errors.ErrUnsupported] and says what is missing. A raw name of more than 64 bytes is
// shown cut on MariaDB.
func (l *Locker) List(ctx context.Context, names ...string) ([]Info, error) {
	for _, name := range names {
		if err := lock.CheckName(name); err != nil {
			return nil, err
		}
	}
	return list(ctx, l.db, l.known(names))
}

// known are the names that the Locker knows, and those that are given, by their keys.
func (l *Locker) known(names []string) map[Key]string {
	known := map[Key]string{}
	l.mu.Lock()
	defer l.mu.Unlock()
	for h := range l.held {
		known[h.key] = h.name
	}
	for name := range l.lines {
		raw, isKey := strings.CutPrefix(name, "\x00") // AcquireKey
		switch {
		case !isKey:
			known[l.names.key(name)] = name
		case l.db.Kind().InnoDB():
			known[Raw(raw)] = raw
		}
	}
	for _, name := range names {
		known[l.names.key(name)] = name
	}
	return known
}
