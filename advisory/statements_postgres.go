package advisory

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// postgres is PostgreSQL's SQL.
type postgres struct {
	// transactionTimeout: the server has that setting (17+), which ends the session of a
	// statement that waits longer.
	transactionTimeout bool
}

// settings are those that a session of ours has otherwise than the pool's. Its timeouts
// are off: they would end a wait, or make a doubt of a try, and what bounds a wait is
// said with each.
func (p postgres) settings(lease time.Duration, mark string) (names, values []string) {
	names = []string{"application_name", "idle_session_timeout", "statement_timeout", "lock_timeout"}
	values = []string{mark, fmt.Sprint(lease.Milliseconds()), "0", "0"}
	if p.transactionTimeout {
		names, values = append(names, "transaction_timeout"), append(values, "0")
	}
	return names, values
}

// setUp reads and sets in one statement, whose columns are evaluated in their order.
func (p postgres) setUp(ctx context.Context, c *sqldb.Conn, lease time.Duration, mark string) (s setup, err error) {
	names, values := p.settings(lease, mark)
	query := "SELECT pg_backend_pid(), pg_is_in_recovery(), current_setting('transaction_read_only')"
	var standby bool
	var readOnly string
	s.before = make([]string, len(names))
	dest := []any{&s.id, &standby, &readOnly}
	var ignored string
	var set strings.Builder
	var args []any
	for i, name := range names {
		query += ", current_setting('" + name + "')"
		dest = append(dest, &s.before[i])
		args = append(args, values[i])
		fmt.Fprintf(&set, ", set_config('%s', $%d::text, false)", name, len(args))
	}
	for range names {
		dest = append(dest, &ignored)
	}
	if err := c.QueryRow(ctx, query+set.String(), args...).Scan(dest...); err != nil {
		return s, err
	}
	switch {
	case standby:
		s.refuse = "it is a hot standby, on which a key can be held at the same time as on the primary"
	case readOnly == "on":
		s.refuse = "its transactions are read-only by default"
	}
	return s, nil
}

// handBack counts what the session holds, in one statement with the settings: they are
// harmless if the session is then closed.
func (p postgres) handBack(ctx context.Context, c *sqldb.Conn, before []string) error {
	names, _ := p.settings(0, "")
	query := "SELECT (SELECT count(*) FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())"
	var holds int64
	dest := []any{&holds}
	var ignored string
	var args []any
	for i, name := range names {
		args = append(args, before[i])
		query += fmt.Sprintf(", set_config('%s', $%d::text, false)", name, len(args))
		dest = append(dest, &ignored)
	}
	if err := c.QueryRow(ctx, query, args...).Scan(dest...); err != nil {
		return err
	}
	if holds > 0 {
		return fmt.Errorf("the session holds %d locks that nobody knows of", holds)
	}
	return nil
}

func (p postgres) try(ctx context.Context, c *sqldb.Conn, k Key, shared, _ bool) (answer, error) {
	return p.ask(ctx, c, k, "pg_try_advisory_lock", shared)
}

// unlock: the answer is false, with a warning, for what is not held.
func (p postgres) unlock(ctx context.Context, c *sqldb.Conn, k Key, shared bool) (answer, error) {
	return p.ask(ctx, c, k, "pg_advisory_unlock", shared)
}

// ask answers the session's id, with a minus for false.
func (p postgres) ask(ctx context.Context, c *sqldb.Conn, k Key, function string, shared bool) (a answer, err error) {
	if shared {
		function += "_shared"
	}
	call, args := k.pg(function)
	err = c.QueryRow(ctx, "SELECT CASE WHEN "+call+" THEN pg_backend_pid() ELSE -pg_backend_pid() END", args...).Scan(&a.id)
	if a.id > 0 {
		a.verdict = yes
	} else {
		a.id = -a.id
	}
	return a, err
}

// block bounds the wait by lock_timeout, for this statement alone: in autocommit the
// transaction of a set_config(.., true) is the statement, and its columns are evaluated
// in their order. The function answers nothing (void), which is not NULL.
func (p postgres) block(ctx context.Context, c *sqldb.Conn, k Key, shared bool, d time.Duration) (a answer, err error) {
	function := "pg_advisory_lock"
	if shared {
		function += "_shared"
	}
	call, args := k.pg(function)
	args = append(args, fmt.Sprint(max(d.Milliseconds(), 1)))
	var set string
	var ok bool
	query := fmt.Sprintf("SELECT pg_backend_pid(), set_config('lock_timeout', $%d::text, true), %s IS NOT NULL", len(args), call)
	err = c.QueryRow(ctx, query, args...).Scan(&a.id, &set, &ok)
	if err == nil && ok {
		a.verdict = yes
	}
	return a, err
}

// holdsAnyPostgres is whether this very session has a key, in either mode.
const holdsAnyPostgres = `SELECT EXISTS (SELECT FROM pg_catalog.pg_locks l
WHERE l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
	AND l.pid = pg_backend_pid() AND l.granted` + oneKeyPostgres + `)`

func (p postgres) holds(ctx context.Context, c *sqldb.Conn, k Key) (held bool, err error) {
	upper, lower, sub := k.halves()
	err = c.QueryRow(ctx, holdsAnyPostgres, upper, lower, sub).Scan(&held)
	return held, err
}

// waitedForPostgres is whether a session waits for a key.
const waitedForPostgres = `SELECT EXISTS (SELECT FROM pg_catalog.pg_locks l
WHERE l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
	AND NOT l.granted` + oneKeyPostgres + `)`

func (p postgres) waitedFor(ctx context.Context, c *sqldb.Conn, k Key) (waited bool, err error) {
	upper, lower, sub := k.halves()
	err = c.QueryRow(ctx, waitedForPostgres, upper, lower, sub).Scan(&waited)
	return waited, err
}

// ping: a primary does not become a standby without a restart, which ends the session.
func (p postgres) ping(ctx context.Context, c *sqldb.Conn) (id int64, refuse string, err error) {
	err = c.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&id)
	return id, "", err
}

// lease: idle_session_timeout is a number of milliseconds, of 31 bits (24 days).
func (p postgres) lease(ttl time.Duration) (time.Duration, error) {
	return min(ttl.Truncate(time.Millisecond), math.MaxInt32*time.Millisecond), nil
}

// slice leaves a moment for the answer.
func (p postgres) slice(left time.Duration) time.Duration {
	if left -= 10 * time.Millisecond; left >= 20*time.Millisecond {
		return left
	}
	return 0
}
