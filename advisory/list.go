package advisory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// Info is a session that holds an advisory lock, or waits for one.
type Info struct {
	// Name is the lock's name, where it is known: names are hashes on the server.
	Name string
	// Key is the lock as the server knows it.
	Key Key
	// Waits says that the session does not hold the lock, but waits for it in the
	// server. A waiter that polls, or stands in the queue of its own process, is not
	// seen.
	Waits bool
	// Shared is the mode.
	Shared bool
	// Conn is the id of the connection: what pg_terminate_backend and KILL take.
	Conn int64
	// Client is the address of the other end, User who has logged in, App what the
	// connection calls itself: application_name on PostgreSQL, the mark of a [Locker] on
	// MySQL and MariaDB. Each is empty where the server has none, or does not show it to
	// this user.
	Client, User, App string
}

// holder describes the session to people. A Locker marks its sessions with where it
// runs.
func (i Info) holder() lock.Holder {
	s := fmt.Sprintf("connection %d", i.Conn)
	if i.User != "" {
		s += " of " + i.User
	}
	if i.Client != "" {
		s += " from " + i.Client
	}
	if m := marked.FindStringSubmatch(i.App); m != nil {
		pid, _ := strconv.Atoi(m[2]) // for people
		return lock.Holder{Host: m[1], PID: pid, Label: s}
	}
	if i.App != "" {
		s += fmt.Sprintf(" (%s)", i.App)
	}
	return lock.Holder{Label: s}
}

// marked is the mark of a Locker.
var marked = regexp.MustCompile(`^sqllock advisory: (.*), pid (\d+)$`)

// list is who holds and who waits on the server, or, on PostgreSQL, in the database.
// known are names by their keys: as the server compares them ([Key.on]).
func list(ctx context.Context, db *sqldb.DB, known map[Key]string) ([]Info, error) {
	var all []Info
	var err error
	switch db.Kind() {
	case sqldb.Postgres:
		all, err = listPostgres(ctx, db, nil)
	case sqldb.SQLite:
		return nil, errSQLite
	default:
		all, err = listInnoDB(ctx, db, known)
	}
	if err != nil {
		return nil, fmt.Errorf("lock: advisory.List: %w", err)
	}
	for i := range all {
		all[i].Name = known[all[i].Key]
	}
	slices.SortFunc(all, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key.form, b.Key.form), cmp.Compare(a.Key.n, b.Key.n),
			cmp.Compare(a.Key.name, b.Key.name), compareBool(a.Waits, b.Waits), cmp.Compare(a.Conn, b.Conn))
	})
	return all, nil
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// holderOf describes who has the lock that could not be had, as far as the server
// shows it. Its Name is the key's. Whoever had it may have released it meanwhile.
func holderOf(ctx context.Context, h sqldb.Handle, key Key) (*lock.HeldError, error) {
	held := &lock.HeldError{Name: key.String()}
	var all []Info
	var err error
	if h.DB().Kind() == sqldb.Postgres {
		all, err = listPostgres(ctx, h, &key)
	} else {
		all, err = holdsMySQL(ctx, h, key)
	}
	if err != nil {
		return nil, err
	}
	for _, i := range all {
		if i.Key == key && !i.Waits {
			held.Holder = i.holder()
			break
		}
	}
	return held, nil
}

// lookBound is how long it is asked who has a lock that was waited for in vain.
const lookBound = 30 * time.Millisecond

// lookAtHolder is holderOf for after a wait: ctx may have ended, the caller shall not
// wait any longer, and the error counts if nothing can be said about the holder. It
// takes a connection only if one is to be had at once.
func lookAtHolder(ctx context.Context, db *sqldb.DB, key Key) *lock.HeldError {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookBound)
	defer cancel()
	if db.Driver().MaxConns() != 1 {
		if held, err := holderOf(bounded, db, key); err == nil {
			return held
		}
	}
	return &lock.HeldError{Name: key.String()}
}

// scanInfos reads a query's rows, each of which scan makes an Info of.
func scanInfos(ctx context.Context, h sqldb.Handle, scan func(*sqldb.Rows) (Info, error), query string, args ...any) ([]Info, error) {
	rows, err := h.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	var all []Info
	for rows.Next() {
		i, err := scan(rows)
		if err != nil {
			return nil, errors.Join(err, rows.Close())
		}
		all = append(all, i)
	}
	return all, errors.Join(rows.Err(), rows.Close())
}
