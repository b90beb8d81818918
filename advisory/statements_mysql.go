package advisory

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// innodb is the SQL of MySQL and MariaDB.
type innodb struct{ maria bool }

// maxTime is the setting that bounds the time of a SELECT: GET_LOCK answers 3024 or
// NULL when it strikes.
func (m innodb) maxTime() string {
	if m.maria {
		return "max_statement_time"
	}
	return "max_execution_time"
}

// mysqlMark is the user variable that marks a session: performance_schema shows it,
// also while the session does nothing.
const mysqlMark = "@sqllock_advisory"

// setUp: read_only is a number on MySQL, and OFF or ON on newer MariaDBs.
func (m innodb) setUp(ctx context.Context, c *sqldb.Conn, lease time.Duration, mark string) (s setup, err error) {
	var readOnly, innodb string
	s.before = make([]string, 2)
	query := "SELECT CONNECTION_ID(), @@global.read_only, @@global.innodb_read_only, @@session.wait_timeout, @@session." + m.maxTime()
	if err := c.QueryRow(ctx, query).Scan(&s.id, &readOnly, &innodb, &s.before[0], &s.before[1]); err != nil {
		return s, err
	}
	for name, value := range map[string]string{"read_only": readOnly, "innodb_read_only": innodb} {
		s.refuse = cmp.Or(s.refuse, refuseReadOnly(name, value))
	}
	set := fmt.Sprintf("SET %s = ?, SESSION wait_timeout = %d, SESSION %s = 0", mysqlMark, lease/time.Second, m.maxTime())
	_, err = c.Exec(ctx, set, mark)
	return s, err
}

// handBack: RELEASE_ALL_LOCKS says how many it has released.
func (m innodb) handBack(ctx context.Context, c *sqldb.Conn, before []string) error {
	var held int64
	if err := c.QueryRow(ctx, "SELECT RELEASE_ALL_LOCKS()").Scan(&held); err != nil {
		return err
	}
	if held > 0 {
		return fmt.Errorf("the session held %d locks that nobody knows of", held)
	}
	for _, v := range before {
		if _, err := strconv.ParseFloat(v, 64); err != nil {
			return err // they go into the statement as they are
		}
	}
	_, err := c.Exec(ctx, fmt.Sprintf("SET %s = NULL, SESSION wait_timeout = %s, SESSION %s = %s", mysqlMark, before[0], m.maxTime(), before[1]))
	return err
}

// name writes a name into a statement so that people can read it in the list of
// processes: ours, which are hashes, and whatever else is harmless. Others are an
// argument.
func (m innodb) name(k Key) (literal string, args []any) {
	for i := range len(k.name) {
		switch c := k.name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '.', c == ':', c == '-':
		default:
			return "?", []any{k.name}
		}
	}
	return "'" + k.name + "'", nil
}

// try asks who holds it in the same statement, if that is wanted: it costs less than
// another one.
func (m innodb) try(ctx context.Context, c *sqldb.Conn, k Key, _, look bool) (a answer, err error) {
	name, args := m.name(k)
	if !look {
		return m.ask(ctx, c, "GET_LOCK("+name+", 0)", args)
	}
	var got, holder *int64
	query := "SELECT CONNECTION_ID(), GET_LOCK(" + name + ", 0), IS_USED_LOCK(" + name + ")"
	if err := c.QueryRow(ctx, query, append(args, args...)...).Scan(&a.id, &got, &holder); err != nil {
		return a, err
	}
	a.verdict = null
	if got != nil {
		a.verdict = verdict(*got)
	}
	if holder != nil {
		a.holder = *holder
	}
	return a, nil
}

// block: MySQL rounds to whole seconds, and MariaDB takes a very long time for none.
func (m innodb) block(ctx context.Context, c *sqldb.Conn, k Key, _ bool, d time.Duration) (answer, error) {
	name, args := m.name(k)
	return m.ask(ctx, c, fmt.Sprintf("GET_LOCK(%s, %d)", name, d/time.Second), args)
}

// unlock: 1 it was held, 0 by another, NULL by nobody.
func (m innodb) unlock(ctx context.Context, c *sqldb.Conn, k Key, _ bool) (answer, error) {
	name, args := m.name(k)
	return m.ask(ctx, c, "RELEASE_LOCK("+name+")", args)
}

// ask puts the answer (0, 1, or 2 for NULL) and the session's id into one number: what
// a column more costs in the protocol is a tenth of the statement.
func (m innodb) ask(ctx context.Context, c *sqldb.Conn, call string, args []any) (a answer, err error) {
	var n int64
	err = c.QueryRow(ctx, "SELECT 4 * CONNECTION_ID() + COALESCE("+call+", 2)", args...).Scan(&n)
	return answer{id: n / 4, verdict: verdict(n % 4)}, err
}

func (m innodb) holds(ctx context.Context, c *sqldb.Conn, k Key) (held bool, err error) {
	name, args := m.name(k)
	err = c.QueryRow(ctx, "SELECT COALESCE(IS_USED_LOCK("+name+") = CONNECTION_ID(), 0)", args...).Scan(&held)
	return held, err
}

// waitedFor is about shared locks, which there are none of.
func (m innodb) waitedFor(context.Context, *sqldb.Conn, Key) (bool, error) {
	return false, errUnsupported
}

// ping: a planned failover makes the old primary read-only, and leaves its sessions
// alone, while others get their locks from the new one.
func (m innodb) ping(ctx context.Context, c *sqldb.Conn) (id int64, refuse string, err error) {
	var readOnly string
	err = c.QueryRow(ctx, "SELECT CONNECTION_ID(), @@global.read_only").Scan(&id, &readOnly)
	if err != nil {
		return id, "", err
	}
	return id, refuseReadOnly("read_only", readOnly), nil
}

// refuseReadOnly says why a server is refused where one of these settings has that value.
func refuseReadOnly(name, value string) string {
	if value == "0" || strings.EqualFold(value, "OFF") {
		return ""
	}
	return fmt.Sprintf("it is read-only (%s is %s): a replica has locks of its own", name, value)
}

// maxWaitTimeout is how long wait_timeout can be, in seconds: a year.
const maxWaitTimeout = 31_536_000

// lease: wait_timeout counts whole seconds.
func (m innodb) lease(ttl time.Duration) (time.Duration, error) {
	if ttl < time.Second {
		return 0, fmt.Errorf("lock: advisory: a TTL of %v: wait_timeout, by which the server ends a session, counts whole seconds, so it has to be 1s or more: %w", ttl, errUnsupported)
	}
	return min(ttl.Truncate(time.Second), maxWaitTimeout*time.Second), nil
}

// slice is whole seconds too.
func (m innodb) slice(left time.Duration) time.Duration {
	return max(left-10*time.Millisecond, 0).Truncate(time.Second)
}
