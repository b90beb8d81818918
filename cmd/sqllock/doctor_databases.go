package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

func (d *doctor) postgres(ctx context.Context) error {
	set, err := d.settings(ctx, `SELECT name, setting FROM pg_settings WHERE name IN
	('default_transaction_isolation', 'TimeZone', 'fsync', 'full_page_writes', 'synchronous_commit', 'transaction_read_only', 'server_version_num')
UNION ALL SELECT 'replica', pg_is_in_recovery()::text
UNION ALL SELECT 'oldest', coalesce((SELECT extract(epoch FROM max(clock_timestamp() - xact_start))::bigint::text FROM pg_stat_activity
	WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()), '0')`)
	if err != nil {
		return err
	}
	iso := set["default_transaction_isolation"]
	d.when(iso != "read committed", warn, "isolation", iso, "locks do not mind; a Guard in a transaction that began before the lock was had fails with a serialization failure: begin it afterwards, or retry")
	d.add("time zone", ok, set["TimeZone"]+" (times are timestamptz: it does not matter)", "")
	d.when(set["fsync"] == "off" || set["full_page_writes"] == "off", fail, "durability", "fsync="+set["fsync"]+", full_page_writes="+set["full_page_writes"]+", synchronous_commit="+set["synchronous_commit"],
		"a crash of the server can take back a lock that was granted: turn fsync and full_page_writes on")
	d.when(set["transaction_read_only"] == "on", fail, "read-only", set["transaction_read_only"], "name the primary, or a user without default_transaction_read_only")
	d.when(set["replica"] == "true", fail, "replica", set["replica"], "name the primary (target_session_attrs=read-write)")
	d.oldest(set["oldest"])
	return d.pooler(ctx)
}

// pooler looks whether two statements outside of a transaction reach one session. (A
// transaction pooler with one server connection looks like none.)
func (d *doctor) pooler(ctx context.Context) error {
	c, err := d.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	seen := map[int]bool{}
	for range 8 {
		var n int
		if err := c.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&n); err != nil {
			return err
		}
		seen[n] = true
	}
	d.when(len(seen) > 1, warn, "pooler", fmt.Sprintf("one connection here reaches %d sessions", len(seen)), "a pooler in transaction mode: the lock table works through it, --strategy advisory does not")
	return nil
}

func (d *doctor) mysql(ctx context.Context) error {
	set, err := d.settings(ctx, `SHOW VARIABLES WHERE Variable_name IN
	('transaction_isolation', 'tx_isolation', 'time_zone', 'innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', 'innodb_doublewrite', 'read_only', 'super_read_only', 'wsrep_on', 'group_replication_group_name')`)
	if err != nil {
		return err
	}
	iso := set["transaction_isolation"]
	if iso == "" {
		iso = set["tx_isolation"]
	}
	d.when(iso == "SERIALIZABLE", warn, "isolation", iso, "every plain SELECT of yours locks rows: locks do not need it")
	d.add("time zone", ok, set["time_zone"]+" (times are UTC: it does not matter)", "")
	durable := "innodb_flush_log_at_trx_commit=" + set["innodb_flush_log_at_trx_commit"]
	bad := set["innodb_flush_log_at_trx_commit"] != "1"
	if set["log_bin"] == "ON" {
		durable += ", sync_binlog=" + set["sync_binlog"]
		bad = bad || set["sync_binlog"] == "0"
	}
	d.when(bad, warn, "durability", durable, "a crash of the server can take back a lock that was granted a moment ago: set both to 1")
	d.when(set["read_only"] == "ON" || set["super_read_only"] == "ON", warn, "read-only", "read_only="+set["read_only"], "this user may write all the same, but it looks like a replica: name the primary")
	d.replica(ctx)
	cluster := "no"
	if set["wsrep_on"] == "ON" {
		cluster = "Galera"
	} else if set["group_replication_group_name"] != "" {
		cluster = "group replication"
	}
	d.when(cluster != "no", warn, "cluster", cluster, "the lock table works, best on one node; --strategy advisory is refused, since GET_LOCK is per node")
	set, err = d.settings(ctx, "SELECT 'oldest', CAST(coalesce(max(timestampdiff(SECOND, trx_started, now())), 0) AS char) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id <> connection_id()")
	if err != nil {
		d.add("oldest snapshot", warn, "unknown", "grant PROCESS to see it: "+firstLine(err))
		return nil
	}
	d.oldest(set["oldest"])
	return nil
}

// replica asks whether the server follows another. SHOW REPLICA STATUS wants a right of
// its own, and MySQL 8.0 before 22 does not know the word.
func (d *doctor) replica(ctx context.Context) {
	rows, err := d.db.Query(ctx, "SHOW REPLICA STATUS")
	if err != nil {
		d.add("replica", warn, "unknown", "grant REPLICATION CLIENT (MariaDB: REPLICA MONITOR) to see it: "+firstLine(err))
		return
	}
	defer func() { _ = rows.Close() }()
	follows := rows.Next()
	d.when(follows, warn, "replica", map[bool]string{true: "it follows another server", false: "no"}[follows], "name the primary: a lock here is none there")
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

func (d *doctor) sqlite(ctx context.Context) error {
	values := map[string]string{}
	for _, name := range []string{"journal_mode", "synchronous", "query_only", "busy_timeout"} {
		var v string
		if err := d.db.QueryRow(ctx, "PRAGMA "+name).Scan(&v); err != nil {
			return err
		}
		values[name] = v
	}
	d.add("isolation", ok, "serializable", "")
	d.add("time zone", ok, "none (times are microseconds since 1970)", "")
	d.when(values["synchronous"] == "0" || values["synchronous"] == "1", warn, "durability", "journal_mode="+values["journal_mode"]+", synchronous="+values["synchronous"],
		"a power failure can take back a lock that was granted a moment ago: synchronous=FULL")
	d.when(values["journal_mode"] != "wal", warn, "journal", values["journal_mode"], "readers and writers are in each other's way: journal_mode(WAL)")
	d.when(values["query_only"] != "0", fail, "read-only", "query_only="+values["query_only"], "open it for writing")
	d.when(values["busy_timeout"] == "0", warn, "busy_timeout", values["busy_timeout"]+" ms", "a statement fails at once when another writes: busy_timeout(5000)")
	d.add("scope", ok, "this host only: "+d.dsn.String(), "")
	return nil
}

// oldSnapshot is from when on a transaction is in the way of cleaning up.
const oldSnapshot = 10 * time.Minute

func (d *doctor) oldest(seconds string) {
	var n int64
	_, _ = fmt.Sscan(seconds, &n)
	age := time.Duration(n) * time.Second
	d.when(age > oldSnapshot, warn, "oldest snapshot", age.String(), "a transaction has been open for long: old versions of lock rows cannot be cleaned up, and locks get slower; end it")
}
