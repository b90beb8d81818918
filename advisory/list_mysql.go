package advisory

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// MySQL and MariaDB have three places to look at, of which each server has some:
//
//   - performance_schema.metadata_locks shows everything. MySQL has it from the start,
//     MariaDB only with performance_schema=ON and the instrument switched on; on both
//     it takes the right to read it.
//   - MariaDB's plugin metadata_lock_info shows who holds.
//   - IS_USED_LOCK tells who holds a lock whose name is known, to everybody.
//
// In the last two cases, whoever waits is found in the list of processes, by its
// statement. That shows other users' sessions only who has the right PROCESS.
const (
	instrumentMySQL = `SELECT CASE WHEN @@performance_schema = 1 AND EXISTS (SELECT 1 FROM performance_schema.setup_instruments
	WHERE NAME = 'wait/lock/metadata/sql/mdl' AND ENABLED = 'YES') THEN 1 ELSE 0 END`

	sessionsMySQL = `SELECT m.OBJECT_NAME, m.LOCK_STATUS = 'PENDING', t.PROCESSLIST_ID, COALESCE(t.PROCESSLIST_HOST, ''),
	COALESCE(t.PROCESSLIST_USER, ''), COALESCE(CONVERT(u.VARIABLE_VALUE USING utf8mb4), '')
FROM performance_schema.metadata_locks m JOIN performance_schema.threads t ON t.THREAD_ID = m.OWNER_THREAD_ID
	LEFT JOIN performance_schema.user_variables_by_thread u ON u.THREAD_ID = m.OWNER_THREAD_ID AND u.VARIABLE_NAME = 'sqllock_advisory'
WHERE m.OBJECT_TYPE = 'USER LEVEL LOCK' AND m.LOCK_STATUS IN ('GRANTED', 'PENDING') AND t.PROCESSLIST_ID IS NOT NULL`

	pluginMariaDB = `SELECT COUNT(*) FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'METADATA_LOCK_INFO' AND PLUGIN_STATUS = 'ACTIVE'`

	// The name stands where a table's has its database.
	holdersMariaDB = `SELECT m.TABLE_SCHEMA, 0, m.THREAD_ID, COALESCE(p.HOST, ''), COALESCE(p.USER, ''), ''
FROM information_schema.METADATA_LOCK_INFO m LEFT JOIN information_schema.PROCESSLIST p ON p.ID = m.THREAD_ID
WHERE m.LOCK_TYPE = 'User lock'`

	processesMySQL = `SELECT ID, COALESCE(HOST, ''), COALESCE(USER, ''), COALESCE(STATE, ''), COALESCE(INFO, '') FROM %s`

	holderMySQL = `SELECT u.ID, COALESCE(p.HOST, ''), COALESCE(p.USER, '') FROM (SELECT IS_USED_LOCK(?) AS ID) u LEFT JOIN %s p ON p.ID = u.ID
WHERE u.ID IS NOT NULL`
)

// processList is the list of processes. MySQL has one, since 8.0.22, that does not stop
// connections from coming and going while it is read; everybody may read it.
func processList(db *sqldb.DB) string {
	if db.Kind() == sqldb.MySQL && db.VersionNumber() >= 80022 {
		return "performance_schema.processlist"
	}
	return "information_schema.PROCESSLIST"
}

// errUnreadable is what can be done where nothing can be seen.
var errUnreadable = fmt.Errorf("this server does not show who holds locks whose names are not known here: it takes SELECT on performance_schema and its instrument wait/lock/metadata/sql/mdl, or on MariaDB the plugin metadata_lock_info: %w", errors.ErrUnsupported)

func listInnoDB(ctx context.Context, db *sqldb.DB, known map[Key]string) ([]Info, error) {
	var on bool
	err := db.QueryRow(ctx, instrumentMySQL).Scan(&on)
	if err == nil && on {
		var all []Info
		if all, err = scanInfos(ctx, db, scanMySQL, sessionsMySQL); err == nil {
			return all, nil
		}
	}
	if err != nil && sqldb.ClassOf(err) != sqldb.Denied {
		return nil, err
	}
	denied := err
	if db.Kind() == sqldb.MariaDB {
		var plugin bool
		if err := db.QueryRow(ctx, pluginMariaDB).Scan(&plugin); err != nil {
			return nil, err
		}
		if plugin {
			all, err := scanInfos(ctx, db, scanMySQL, holdersMariaDB)
			if err != nil {
				return nil, err
			}
			waiting, _, err := processes(ctx, db)
			return append(all, waiting...), err
		}
	}
	if len(known) == 0 {
		return nil, errors.Join(errUnreadable, denied)
	}
	keys := make([]Key, 0, len(known))
	for k := range known {
		keys = append(keys, k)
	}
	return listUsed(ctx, db, keys)
}

func scanMySQL(rows *sqldb.Rows) (i Info, err error) {
	var name string
	err = rows.Scan(&name, &i.Waits, &i.Conn, &i.Client, &i.User, &i.App)
	i.Key = Raw(name)
	return i, err
}

// holdsMySQL is who holds one key.
func holdsMySQL(ctx context.Context, h sqldb.Handle, key Key) ([]Info, error) {
	return scanInfos(ctx, h, func(rows *sqldb.Rows) (Info, error) {
		i := Info{Key: key}
		return i, rows.Scan(&i.Conn, &i.Client, &i.User)
	}, fmt.Sprintf(holderMySQL, processList(h.DB())), key.name)
}

// listUsed asks for each key who holds it, and finds who waits for one of them.
func listUsed(ctx context.Context, h sqldb.Handle, keys []Key) ([]Info, error) {
	waiting, sessions, err := processes(ctx, h)
	if err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(waiting, func(i Info) bool { return !slices.Contains(keys, i.Key) })
	for some := range slices.Chunk(keys, 100) {
		args := make([]any, len(some))
		for i, k := range some {
			args[i] = k.name
		}
		query := "SELECT 0, IS_USED_LOCK(?)" + strings.Repeat(" UNION ALL SELECT %d, IS_USED_LOCK(?)", len(some)-1)
		numbers := make([]any, len(some)-1)
		for i := range numbers {
			numbers[i] = i + 1
		}
		holders, err := scanInfos(ctx, h, func(rows *sqldb.Rows) (Info, error) {
			var n int
			var conn *int64
			if err := rows.Scan(&n, &conn); err != nil || conn == nil {
				return Info{}, err
			}
			i := sessions[*conn]
			i.Conn, i.Key = *conn, some[n]
			return i, nil
		}, fmt.Sprintf(query, numbers...), args...)
		if err != nil {
			return nil, err
		}
		all = append(all, slices.DeleteFunc(holders, func(i Info) bool { return i.Conn == 0 })...)
	}
	return all, nil
}

// getLock finds the name in the statement of a session that waits. Who sends names as
// arguments of a prepared statement is not found on MySQL: MariaDB shows them.
var getLock = regexp.MustCompile(`(?i)\bget_lock\s*\(\s*(?:'([^'\\]*)'|"([^"\\]*)")`)

// processes are the sessions that wait for a lock, and all sessions by their ids.
func processes(ctx context.Context, h sqldb.Handle) (waiting []Info, sessions map[int64]Info, err error) {
	sessions = map[int64]Info{}
	_, err = scanInfos(ctx, h, func(rows *sqldb.Rows) (i Info, err error) {
		var state, statement string
		if err := rows.Scan(&i.Conn, &i.Client, &i.User, &state, &statement); err != nil {
			return i, err
		}
		sessions[i.Conn] = i
		if m := getLock.FindStringSubmatch(statement); m != nil && strings.EqualFold(state, "User lock") {
			w := i
			w.Waits = true
			if w.Key, err = Raw(m[1] + m[2]).on(h.DB().Kind()); err == nil {
				waiting = append(waiting, w)
			}
		}
		return i, nil
	}, fmt.Sprintf(processesMySQL, processList(h.DB())))
	return waiting, sessions, err
}
