package sqllock

import (
	"strconv"
	"strings"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// mysql: MySQL and MariaDB.
//
// An UPDATE whose WHERE is false waits for a row lock on InnoDB all the same, and
// nothing here may wait for a guard, which is a shared lock. So on MariaDB the
// statement says that it waits for no row lock: error 1205 is a row that was skipped
// (see Locker.change). MySQL refuses that setting in a hint, and there the row is
// found by a SELECT .. FOR UPDATE SKIP LOCKED; of the statements that can change what
// such a SELECT finds, INSERT .. SELECT .. ON DUPLICATE KEY UPDATE is the cheapest: a
// join with a derived table costs twice as much over the plain UPDATE. It inserts
// nothing: the row that it has found is locked, and is there. Many rows at once are
// such a join on both, with LIMIT, so that it is evaluated first, and STRAIGHT_JOIN.
//
// SET assigns from left to right: the token is made of the old one first. It comes
// back in the OK packet, through LAST_INSERT_ID(expr).
//
// On Galera and group replication (replicated) a row lock is not in the write set,
// and is not certified: the guard changes the row, by one microsecond of its lease,
// so that the COMMIT of one of two is refused (1213).
func mysql(kind sqldb.Kind, table, tickets string, replicated bool) statements {
	const now = "UTC_TIMESTAMP(6)"
	const epoch = "'1970-01-01 00:00:00.000000'"
	sql := func(text string) stmt {
		return compile(kind, strings.NewReplacer("$locks", table, "$tickets", tickets, "$now", now, "$epoch", epoch,
			"$row", table,
			"$token", table+".token = LAST_INSERT_ID(GREATEST("+table+".token + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', "+now+")))",
			"$plain", table+".token = GREATEST("+table+".token + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', "+now+"))",
			"$free", "expires_at <= "+now+" AND hold_until <= "+now,
			"$mine", "name = {name} AND slot = 0 AND owner = {owner} AND token = {token} AND expires_at > "+epoch).Replace(text))
	}
	// skipping is an UPDATE of the one row that where describes, if nobody is at it.
	skipping := func(where, set string) stmt {
		if kind == sqldb.MariaDB {
			return sql("SET STATEMENT innodb_lock_wait_timeout=0 FOR UPDATE $locks SET " + set + "\nWHERE " + where)
		}
		return sql("INSERT INTO $locks (name, slot)\nSELECT l.name, l.slot FROM $locks l WHERE " + where + " FOR UPDATE SKIP LOCKED\nON DUPLICATE KEY UPDATE " + set)
	}
	in := func(arg string) string { return now + " + INTERVAL {" + arg + "} MICROSECOND" }
	const left = "TIMESTAMPDIFF(MICROSECOND, " + now + ", GREATEST(expires_at, hold_until))"
	const free = "name = {name} AND slot = 0 AND $free"
	const look = `SELECT owner, token, holder, acquired_at, ` + left + ` FROM $locks WHERE name = {name} AND slot = 0`
	const old = "GREATEST(expires_at, hold_until, COALESCE(freed_at, $epoch)) < $now - INTERVAL {age} MICROSECOND"
	const dead = "ticket < 0 AND expires_at < $now - INTERVAL {age} MICROSECOND"
	acquire := "$token, $row.owner = {owner}, $row.acquired_at = $now, $row.expires_at = " + in("ttl") + ", $row.holder = {holder}"
	s := statements{
		acquire:     skipping(free, acquire),
		acquireHold: skipping(free, acquire+", $row.hold_until = "+in("hold")),
		look:        sql(look),
		touch:       sql(`INSERT INTO $locks (name, freed_at) VALUES ({name}, $now)`),
		touchTx:     sql(`INSERT INTO $locks (name, freed_at) VALUES ({name}, $now) ON DUPLICATE KEY UPDATE slot = slot`),
		settle:      sql(`SELECT token FROM $locks WHERE name = {name} AND slot = 0 AND owner = {owner} AND expires_at > $epoch`),
		release:     skipping("$mine", "$row.expires_at = $epoch, $row.freed_at = $now"),
		releaseTx:   sql(`UPDATE $locks SET expires_at = $epoch, freed_at = $now WHERE $mine`),
		extend:      skipping("$mine", "$row.expires_at = "+in("ttl")),
		guard:       sql(`SELECT owner, token FROM $locks WHERE $mine LOCK IN SHARE MODE`),
		// What a plain read of the transaction shows: if it is not what the locking read
		// showed, the transaction's snapshot is from before the lock was had.
		snapshot:  sql(`SELECT owner, token FROM $locks WHERE $mine`),
		acquireTx: sql(look + ` FOR UPDATE`),
		tryTx:     sql(look + ` FOR UPDATE SKIP LOCKED`),
		versionTx: sql(`SELECT token, CAST(expires_at AS CHAR) FROM $locks WHERE name = {name} AND slot = 0`),
		// No LAST_INSERT_ID: it would stay in the caller's session.
		takeTx: sql(`UPDATE $locks SET $plain, owner = NULL, acquired_at = $now, freed_at = $now, expires_at = $epoch, waited_since = NULL, holder = {holder}
WHERE ` + free),
		list: sql(`SELECT name, owner, token, holder, acquired_at, ` + left + ` FROM $locks WHERE slot = 0 AND NOT ($free) ORDER BY name`),
		force: skipping("name = {name} AND slot = 0 AND token = {token} AND NOT ($free)",
			"$plain, $row.owner = NULL, $row.expires_at = $epoch, $row.hold_until = $epoch, $row.freed_at = $now"),
		// A search that locks would lock all that it passes, and the gaps between, until
		// the statement ends: so the search only reads.
		gc:      sql(`SELECT name, slot FROM $locks WHERE ` + old + ` LIMIT ` + strconv.Itoa(gcBatch)),
		waiters: sql(`SELECT name, ticket, created_at, holder FROM $tickets WHERE expires_at > $now`),
		// As gc does.
		gcWaiters: sql(`SELECT name, ticket FROM $tickets WHERE ` + dead + ` LIMIT ` + strconv.Itoa(gcBatch)),
	}
	// remove deletes those of rows that are still so, and at which nobody is.
	remove := func(from, number, so string) func(rows []rowKey, age int64) (string, []any) {
		return func(rows []rowKey, age int64) (string, []any) {
			args := make([]any, 0, 2*len(rows)+1)
			for _, r := range rows {
				args = append(args, []byte(r.name), r.slot)
			}
			st := sql(`DELETE l FROM (SELECT l.name, l.` + number + ` FROM (SELECT ? AS name, ? AS number` + strings.Repeat(" UNION ALL SELECT ?, ?", len(rows)-1) + `) m
STRAIGHT_JOIN ` + from + ` l FORCE INDEX (PRIMARY) ON l.name = m.name AND l.` + number + ` = m.number WHERE ` + strings.NewReplacer("expires_at", "l.expires_at", "hold_until", "l.hold_until", "freed_at", "l.freed_at", "ticket", "l.ticket").Replace(so) + ` LIMIT 1000000 FOR UPDATE SKIP LOCKED) d
STRAIGHT_JOIN ` + from + ` l ON l.name = d.name AND l.` + number + ` = d.` + number)
			return st.query, append(args, age)
		}
	}
	s.gcRows = remove("$locks", "slot", old)
	s.gcWaiterRows = remove("$tickets", "ticket", dead)
	// One statement for new rows and old ones, as on PostgreSQL.
	s.show = func(batch []*waiter, ttl int64) (string, []any) {
		args := make([]any, 0, 6*len(batch)+1)
		for _, w := range batch {
			args = append(args, []byte(w.name), w.ticket, []byte(w.owner), time.Since(w.begun).Microseconds(), ttl, w.holder)
		}
		const row = "(?, ?, ?, " + now + " - INTERVAL ? MICROSECOND, " + now + " + INTERVAL ? MICROSECOND, ?)"
		return `INSERT INTO ` + tickets + ` (name, ticket, owner, created_at, expires_at, holder)
VALUES ` + row + strings.Repeat(", "+row, len(batch)-1) + `
ON DUPLICATE KEY UPDATE expires_at = ` + now + ` + INTERVAL ? MICROSECOND`, append(args, ttl)
	}
	// FORCE INDEX: a small table would be scanned, and the rows of others waited for.
	s.hide = func(batch []*waiter, _ int64) (string, []any) {
		args := make([]any, 0, 2*len(batch))
		for _, w := range batch {
			args = append(args, []byte(w.name), w.ticket)
		}
		return `DELETE t FROM (SELECT ? AS name, ? AS ticket` + strings.Repeat(" UNION ALL SELECT ?, ?", len(batch)-1) + `) m
STRAIGHT_JOIN ` + tickets + ` t FORCE INDEX (PRIMARY) ON t.name = m.name AND t.ticket = m.ticket`, args
	}
	if replicated {
		s.guard = sql(`SELECT owner, token FROM $locks WHERE $mine FOR UPDATE`)
		s.guardWrite = sql(`UPDATE $locks SET expires_at = expires_at + INTERVAL 1 MICROSECOND WHERE $mine`)
	}
	// The batch is a UNION: MySQL refuses to lock rows joined with a JSON_TABLE, and
	// MariaDB waits for them there. FORCE INDEX: a small table would be scanned, and
	// rows of others locked.
	batch := func(all []renewal) (string, []any) {
		var b strings.Builder
		args := make([]any, 0, 5*len(all))
		for i, h := range all {
			if i == 0 {
				b.WriteString("SELECT ? AS name, ? AS owner, ? AS token, ? AS ttl, ? AS most")
			} else {
				b.WriteString(" UNION ALL SELECT ?, ?, ?, ?, ?")
			}
			var most any
			if h.atMost > 0 {
				most = h.atMost.Microseconds()
			}
			args = append(args, []byte(h.name), []byte(h.owner), h.token, h.ttl.Microseconds(), most)
		}
		return "(" + b.String() + ") m STRAIGHT_JOIN " + table + " l FORCE INDEX (PRIMARY) ON l.name = m.name AND l.slot = 0 AND l.owner = m.owner AND l.token = m.token AND l.expires_at > " + epoch, args
	}
	s.renew = func(all []renewal) (string, []any) {
		from, args := batch(all)
		return "UPDATE (SELECT l.name, l.slot, m.ttl, m.most FROM " + from + " LIMIT 1000000 FOR UPDATE SKIP LOCKED) d STRAIGHT_JOIN " + table +
			" u ON u.name = d.name AND u.slot = d.slot SET u.expires_at = LEAST(" + now + " + INTERVAL d.ttl MICROSECOND, COALESCE(u.acquired_at + INTERVAL d.most MICROSECOND, " + now + " + INTERVAL d.ttl MICROSECOND))", args
	}
	s.renewed = func(all []renewal) (string, []any) {
		from, args := batch(all)
		return "SELECT l.name, l.token, TIMESTAMPDIFF(MICROSECOND, " + now + ", l.expires_at) FROM " + from, args
	}
	return s
}
