package main

import (
	"context"
	"fmt"

	"github.com/sqlnative/locks/sqldb"
)

func (d *doctor) postgres(ctx context.Context) {
	// The age is that of the oldest transaction that keeps VACUUM from removing rows, a
	// prepared one included. Of other users' sessions only pg_read_all_stats sees it.
	set, err := d.settings(ctx, `SELECT name, setting FROM pg_settings WHERE name IN
	('default_transaction_isolation', 'TimeZone', 'fsync', 'full_page_writes', 'synchronous_commit', 'transaction_read_only')
UNION ALL SELECT 'replica', pg_is_in_recovery()::text
UNION ALL SELECT 'stats', pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')::text
UNION ALL SELECT 'oldest', greatest(
	(SELECT extract(epoch FROM max(clock_timestamp() - xact_start)) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()),
	(SELECT extract(epoch FROM max(clock_timestamp() - prepared)) FROM pg_prepared_xacts), 0)::bigint::text`)
	if err != nil {
		d.unknown("settings", err, "this user has to read pg_settings and pg_stat_activity")
		return
	}
	iso := set["default_transaction_isolation"]
	d.when(iso != "read committed", warn, "isolation", iso, "locks do not mind; a Guard in a transaction that began before the lock was had fails with a serialization failure: begin it afterwards, or retry")
	d.add("time zone", ok, set["TimeZone"]+" (times are timestamptz: it does not matter)", "")
	durable := "fsync=" + set["fsync"] + ", full_page_writes=" + set["full_page_writes"] + ", synchronous_commit=" + set["synchronous_commit"]
	if set["synchronous_commit"] == "off" {
		durable += " (an acquire waits for the disk all the same)"
	}
	d.when(set["fsync"] == "off" || set["full_page_writes"] == "off", fail, "durability", durable,
		"a crash of the server can take back a lock that was granted: turn fsync and full_page_writes on")
	d.when(set["transaction_read_only"] == "on", fail, "read-only", yesNo(set["transaction_read_only"] == "on"), "name the primary, or a user without default_transaction_read_only")
	d.when(set["replica"] == "true", fail, "replica", yesNo(set["replica"] == "true"), "name the primary (target_session_attrs=read-write)")
	if set["stats"] == "true" {
		d.oldest(set["oldest"])
	} else {
		d.add("oldest snapshot", warn, "unknown: this user does not see other users' transactions", "grant it pg_read_all_stats, or run doctor as one who has it")
	}
	d.pooler(ctx)
}

// pooler looks for one that pools transactions: there a statement runs in whatever session
// is free, so that one connection reaches several of them, or two that are open at the
// same time meet in one. Sessions of the server's own do neither.
func (d *doctor) pooler(ctx context.Context) {
	var conns [2]*sqldb.Conn
	var seen [2]map[int]bool
	for i := range conns {
		c, err := d.db.Conn(ctx)
		if err != nil {
			d.unknown("pooler", err, "two connections have to be had")
			return
		}
		defer func() { _ = c.Close() }()
		conns[i], seen[i] = c, map[int]bool{}
	}
	shared := false
	for range 4 {
		for i, c := range conns {
			var n int
			if err := c.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&n); err != nil {
				d.unknown("pooler", err, "a connection has to stay")
				return
			}
			seen[i][n] = true
			shared = shared || seen[1-i][n]
		}
	}
	value, most := "none is seen: one connection here is one session", max(len(seen[0]), len(seen[1]))
	switch {
	case most > 1:
		value = fmt.Sprintf("one connection here reaches %d sessions", most)
	case shared:
		value = "two connections here share a session"
	}
	d.when(shared || most > 1, warn, "pooler", value, "a pooler in transaction mode: the lock table works through it, --strategy advisory does not")
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}
