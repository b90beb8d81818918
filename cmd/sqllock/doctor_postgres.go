package main

import (
	"context"
	"fmt"
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

// pooler looks whether two statements outside of a transaction reach one session. (A
// transaction pooler with one server connection looks like none.)
func (d *doctor) pooler(ctx context.Context) {
	c, err := d.db.Conn(ctx)
	if err != nil {
		d.unknown("pooler", err, "a connection of its own has to be had")
		return
	}
	defer func() { _ = c.Close() }()
	seen := map[int]bool{}
	for range 8 {
		var n int
		if err := c.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&n); err != nil {
			d.unknown("pooler", err, "a connection has to stay")
			return
		}
		seen[n] = true
	}
	value := "none is seen: one connection here is one session"
	if len(seen) > 1 {
		value = fmt.Sprintf("one connection here reaches %d sessions", len(seen))
	}
	d.when(len(seen) > 1, warn, "pooler", value, "a pooler in transaction mode: the lock table works through it, --strategy advisory does not")
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}
