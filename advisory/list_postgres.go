package advisory

import (
	"context"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// sessionsPostgres is who holds and who waits in this database. pg_locks keeps an
// int64 key in two halves, objsubid 1, and a pair likewise, objsubid 2. Everybody can
// read it; pg_stat_activity shows only who has the rights of pg_read_all_stats where
// other users' sessions come from. DISTINCT is for keys that one session holds both for
// itself and for its transaction.
const sessionsPostgres = `SELECT DISTINCT l.classid::bigint, l.objid::bigint, l.objsubid::bigint, l.granted, l.mode = 'ShareLock', l.pid::bigint,
	coalesce(host(a.client_addr) || ':' || a.client_port, ''), coalesce(a.usename::text, ''), coalesce(a.application_name, '')
FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())`

// oneKeyPostgres restricts it to one key.
const oneKeyPostgres = ` AND l.classid::bigint = $1 AND l.objid::bigint = $2 AND l.objsubid = $3`

// holdsPostgres is whether this very session has a key, exclusively.
const holdsPostgres = `SELECT EXISTS (SELECT FROM pg_catalog.pg_locks l
WHERE l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
	AND l.pid = pg_backend_pid() AND l.granted AND l.mode = 'ExclusiveLock'` + oneKeyPostgres + `)`

// listPostgres lists all sessions, or those of one key.
func listPostgres(ctx context.Context, h sqldb.Handle, key *Key) ([]Info, error) {
	query, args := sessionsPostgres, []any(nil)
	if key != nil {
		upper, lower, sub := key.halves()
		query, args = query+oneKeyPostgres, []any{upper, lower, sub}
	}
	return scanInfos(ctx, h, func(rows *sqldb.Rows) (i Info, err error) {
		var upper, lower, sub int64
		var granted bool
		err = rows.Scan(&upper, &lower, &sub, &granted, &i.Shared, &i.Conn, &i.Client, &i.User, &i.App)
		i.Key, i.Waits = keyOfHalves(upper, lower, sub), !granted
		i.App = strings.ToValidUTF8(i.App, "?")
		return i, err
	}, query, args...)
}

// halves are a key's classid, objid and objsubid.
func (k Key) halves() (upper, lower, sub int64) {
	sub = 1
	if k.form == pairKey {
		sub = 2
	}
	return int64(uint32(k.n >> 32)), int64(uint32(k.n)), sub
}

func keyOfHalves(upper, lower, sub int64) Key {
	k := Key{form: int64Key, n: upper<<32 | lower}
	if sub == 2 {
		k.form = pairKey
	}
	return k
}
