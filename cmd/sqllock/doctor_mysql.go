package main

import (
	"context"
	"strings"
)

func (d *doctor) mysql(ctx context.Context) {
	// MariaDB before 11.1 has tx_isolation and tx_read_only.
	set, err := d.settings(ctx, `SHOW VARIABLES WHERE Variable_name IN
	('transaction_isolation', 'tx_isolation', 'transaction_read_only', 'tx_read_only', 'read_only', 'super_read_only', 'innodb_read_only', 'time_zone', 'sql_mode',
	'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'binlog_format', 'wsrep_on', 'group_replication_group_name')`)
	if err != nil {
		d.unknown("settings", err, "this user has to read the server's variables")
		return
	}
	iso := set["transaction_isolation"]
	if iso == "" {
		iso = set["tx_isolation"]
	}
	d.when(iso == "SERIALIZABLE", warn, "isolation", iso, "every plain SELECT of yours locks rows: locks do not need it")
	d.add("time zone", ok, set["time_zone"]+" (times are UTC: it does not matter)", "")
	strict := strings.Contains(set["sql_mode"], "STRICT_TRANS_TABLES") || strings.Contains(set["sql_mode"], "STRICT_ALL_TABLES")
	d.when(!strict, warn, "sql mode", "sql_mode="+set["sql_mode"], "a number or a text that is too large for its column is cut without an error: add STRICT_TRANS_TABLES")
	durable := "innodb_flush_log_at_trx_commit=" + set["innodb_flush_log_at_trx_commit"]
	bad := set["innodb_flush_log_at_trx_commit"] != "1"
	// What is prepared and not in the binary log is rolled back after a crash.
	if set["log_bin"] == "ON" {
		durable += ", sync_binlog=" + set["sync_binlog"]
		bad = bad || set["sync_binlog"] != "1"
		d.when(set["binlog_format"] == "STATEMENT", warn, "binary log", "binlog_format="+set["binlog_format"], "a READ COMMITTED transaction cannot write (error 1665), and stock is taken under the server's own isolation: take ROW")
	}
	d.when(bad, warn, "durability", durable, "a crash of the machine can take back a lock that was granted a moment ago: set each of these to 1")
	var readOnly []string
	for _, name := range []string{"read_only", "super_read_only", "innodb_read_only", "transaction_read_only", "tx_read_only"} {
		if set[name] == "ON" {
			readOnly = append(readOnly, name+"=ON")
		}
	}
	value := "no"
	if len(readOnly) > 0 {
		value = strings.Join(readOnly, ", ")
	}
	d.when(value != "no", fail, "read-only", value, "name the primary, or take it out of the DSN")
	d.replica(ctx)
	cluster := "no"
	if set["wsrep_on"] == "ON" {
		cluster = "Galera"
	} else if set["group_replication_group_name"] != "" {
		cluster = "group replication"
	}
	d.when(cluster != "no", warn, "cluster", cluster, "the lock table works, best on one node; --strategy advisory is refused, since GET_LOCK is per node")
	// trx_started is in the time zone of the machine, whatever that of the session is.
	set, err = d.settings(ctx, `SELECT 'oldest', CAST(coalesce(max(timestampdiff(SECOND, trx_started, convert_tz(now(), @@session.time_zone, 'SYSTEM'))), 0) AS char)
FROM information_schema.innodb_trx WHERE trx_mysql_thread_id <> connection_id()`)
	if err != nil {
		d.unknown("oldest snapshot", err, "grant PROCESS to see it")
		return
	}
	d.oldest(set["oldest"])
}

// replica asks whether the server follows another, which wants a right of its own.
// MySQL 8.0 before 22 knows only the older words, MySQL since 8.4 only the newer ones.
func (d *doctor) replica(ctx context.Context) {
	follows, err := d.answers(ctx, "SHOW REPLICA STATUS")
	if err != nil {
		if again, older := d.answers(ctx, "SHOW SLAVE STATUS"); older == nil {
			follows, err = again, nil
		}
	}
	if err != nil {
		d.unknown("replica", err, "grant REPLICATION CLIENT (MariaDB: REPLICA MONITOR) to see it")
		return
	}
	value := "no"
	if follows {
		value = "it follows another server"
	}
	d.when(follows, warn, "replica", value, "name the primary: a lock here is none there")
}

// answers reports whether a query has a row.
func (d *doctor) answers(ctx context.Context, query string) (bool, error) {
	rows, err := d.db.Query(ctx, query)
	if err != nil {
		return false, err
	}
	defer func() { _ = rows.Close() }()
	any := rows.Next()
	return any, rows.Err()
}
