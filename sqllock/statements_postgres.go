package sqllock

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// postgres: every statement is one round trip.
//
// What changes owner or token first locks the row FOR UPDATE, SKIP LOCKED, in the
// same statement. FOR UPDATE, because Guard holds FOR KEY SHARE, which lets plain
// UPDATEs pass: a take-over that were a plain UPDATE would pass it too, and a guard
// would then succeed on a lost lock. SKIP LOCKED, because a try must never wait in
// the server for somebody's transaction; and a row that is skipped is not written
// to, not even to the WAL.
//
// Renewal and release are plain UPDATEs of columns that are in no key: they pass a
// guard.
//
// An acquisition must be durable, and so must a longer lease, which its holder
// trusts: a session with synchronous_commit=off is raised for these statements. A
// release need not be: losing it in a crash costs the next holder a TTL, never
// safety. Both by set_config(.., true), which ends with the
// statement's own transaction. Nor need the rows of waiters be, which are for people.
func postgres(table, tickets string) statements {
	sql := func(text string) stmt {
		return compile(sqldb.Postgres, strings.NewReplacer("$locks", table, "$tickets", tickets, "$now", "clock_timestamp()",
			"$token", "greatest(l.token + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)",
			"$epoch", "'epoch'::timestamptz", "$free", "l.expires_at <= clock_timestamp() AND l.hold_until <= clock_timestamp()").Replace(text))
	}
	in := func(arg string) string { return "clock_timestamp() + {" + arg + "}::bigint * interval '1 microsecond'" }
	const durable = `durable AS MATERIALIZED (
	SELECT CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END)`
	const left = "(extract(epoch FROM greatest(l.expires_at, l.hold_until) - clock_timestamp()) * 1000000)::bigint"
	take := func(lock string) stmt {
		return sql(`WITH free AS (
	SELECT l.name, l.slot FROM $locks l
	WHERE l.name = {name}::text AND l.slot = 0 AND $free FOR UPDATE ` + lock + `)
UPDATE $locks l SET owner = NULL, token = $token, acquired_at = $now, freed_at = $now, expires_at = $epoch, waited_since = NULL, holder = {holder}::text
FROM free WHERE l.name = free.name AND l.slot = free.slot RETURNING l.token`)
	}
	acquire := func(hold string) stmt {
		return sql(`WITH ` + durable + `, free AS (
	SELECT l.name, l.slot FROM $locks l, durable
	WHERE l.name = {name}::text AND l.slot = 0 AND $free FOR UPDATE OF l SKIP LOCKED)
UPDATE $locks l SET owner = {owner}::text, token = $token, acquired_at = $now, expires_at = ` + in("ttl") + `, holder = {holder}::text` + hold + `
FROM free WHERE l.name = free.name AND l.slot = free.slot
RETURNING l.token`)
	}
	const batch = "jsonb_to_recordset($1::jsonb) AS m(name text, owner text, token bigint, ttl bigint, most bigint)"
	const soft = "soft AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))"
	mine := "l.name = m.name AND l.slot = 0 AND l.owner = m.owner AND l.token = m.token AND l.expires_at > 'epoch'"
	return statements{
		returning:   true,
		acquire:     acquire(""),
		acquireHold: acquire(", hold_until = " + in("hold")),
		look:        sql(`SELECT l.owner, l.token, l.holder, l.acquired_at, ` + left + ` FROM $locks l WHERE l.name = {name}::text AND l.slot = 0`),
		touch:       sql(`INSERT INTO $locks (name, freed_at) VALUES ({name}::text, $now) ON CONFLICT (name, slot) DO NOTHING`),
		touchTx:     sql(`INSERT INTO $locks (name, freed_at) VALUES ({name}::text, $now) ON CONFLICT (name, slot) DO NOTHING`),
		settle:      sql(`SELECT l.token FROM $locks l WHERE l.name = {name}::text AND l.slot = 0 AND l.owner = {owner}::text AND l.expires_at > $epoch`),
		release: sql(`WITH ` + soft + `
UPDATE $locks l SET expires_at = $epoch, freed_at = $now FROM soft
WHERE l.name = {name}::text AND l.slot = 0 AND l.owner = {owner}::text AND l.token = {token}::bigint AND l.expires_at > $epoch`),
		releaseTx: sql(`UPDATE $locks l SET expires_at = $epoch, freed_at = $now
WHERE l.name = {name}::text AND l.slot = 0 AND l.owner = {owner}::text AND l.token = {token}::bigint AND l.expires_at > $epoch`),
		extend: sql(`WITH ` + durable + `
UPDATE $locks l SET expires_at = ` + in("ttl") + ` FROM durable
WHERE l.name = {name}::text AND l.slot = 0 AND l.owner = {owner}::text AND l.token = {token}::bigint AND l.expires_at > $epoch`),
		guard: sql(`SELECT l.owner, l.token FROM $locks l
WHERE l.name = {name}::text AND l.slot = 0 AND l.owner = {owner}::text AND l.token = {token}::bigint AND l.expires_at > $epoch FOR KEY SHARE`),
		acquireTx: take(""),
		tryTx:     take("SKIP LOCKED"),
		list:      sql(`SELECT l.name, l.owner, l.token, l.holder, l.acquired_at, ` + left + ` FROM $locks l WHERE l.slot = 0 AND NOT ($free) ORDER BY l.name`),
		force: sql(`WITH it AS (
	SELECT l.name, l.slot FROM $locks l WHERE l.name = {name}::text AND l.slot = 0 AND l.token = {token}::bigint AND NOT ($free) FOR UPDATE SKIP LOCKED)
UPDATE $locks l SET owner = NULL, token = $token, expires_at = $epoch, hold_until = $epoch, freed_at = $now
FROM it WHERE l.name = it.name AND l.slot = it.slot`),
		gc: sql(`DELETE FROM $locks WHERE (name, slot) IN (
	SELECT l.name, l.slot FROM $locks l
	WHERE greatest(l.expires_at, l.hold_until, l.freed_at) < $now - {age}::bigint * interval '1 microsecond' ORDER BY l.name, l.slot LIMIT ` + strconv.Itoa(gcBatch) + ` FOR UPDATE SKIP LOCKED)`),
		renew: func(all []renewal) (string, []any) {
			// Rows of several names are only ever locked SKIP LOCKED: two such statements
			// that met in opposite orders would deadlock.
			return `WITH ` + durable + `, mine AS (
	SELECT l.name, l.slot, m.ttl, m.most FROM durable, ` + batch + ` JOIN ` + table + ` l ON ` + mine + ` FOR NO KEY UPDATE OF l SKIP LOCKED)
UPDATE ` + table + ` l SET expires_at = least(clock_timestamp() + mine.ttl * interval '1 microsecond', l.acquired_at + mine.most * interval '1 microsecond')
FROM mine WHERE l.name = mine.name AND l.slot = mine.slot RETURNING l.name, l.token`, []any{asJSON(all)}
		},
		renewed: func(all []renewal) (string, []any) {
			return `SELECT l.name, l.token, 0 FROM ` + batch + ` JOIN ` + table + ` l ON ` + mine, []any{asJSON(all)}
		},
		waiters: sql(`SELECT name, ticket, created_at, holder FROM $tickets WHERE expires_at > $now`),
		// One statement for new rows and old ones: a row that is gone, since its waiter
		// was taken for dead, is there again with the next one. Nobody else has these
		// numbers, so no row lock is waited for.
		show: func(batch []*waiter, ttl int64) (string, []any) {
			return `WITH ` + soft + `
INSERT INTO ` + tickets + ` (name, ticket, owner, created_at, expires_at, holder)
SELECT m.name, m.ticket, m.owner, clock_timestamp() - m.waited * interval '1 microsecond', clock_timestamp() + $2::bigint * interval '1 microsecond', m.holder
FROM soft, jsonb_to_recordset($1::jsonb) AS m(name text, ticket bigint, owner text, waited bigint, holder text)
ON CONFLICT (name, ticket) DO UPDATE SET expires_at = excluded.expires_at`, []any{waitersJSON(batch), ttl}
		},
		hide: func(batch []*waiter, _ int64) (string, []any) {
			return `WITH ` + soft + `
DELETE FROM ` + tickets + ` t USING soft, jsonb_to_recordset($1::jsonb) AS m(name text, ticket bigint)
WHERE t.name = m.name AND t.ticket = m.ticket`, []any{waitersJSON(batch)}
		},
		gcWaiters: sql(`DELETE FROM $tickets WHERE (name, ticket) IN (
	SELECT t.name, t.ticket FROM $tickets t
	WHERE t.ticket < 0 AND t.expires_at < $now - {age}::bigint * interval '1 microsecond' ORDER BY t.name, t.ticket LIMIT ` + strconv.Itoa(gcBatch) + ` FOR UPDATE SKIP LOCKED)`),
	}
}

// asJSON is a batch as one argument, which every driver can send.
//
// It is not encoding/json that writes it: that escapes U+2028, and a database whose
// encoding is not UTF-8 refuses such an escape (22P05), and with it the renewal of
// all. Here only ASCII is escaped.
func asJSON(all []renewal) string {
	var b strings.Builder
	for i, h := range all {
		b.WriteString(map[bool]string{true: `[{"name":`, false: `,{"name":`}[i == 0])
		jsonText(&b, h.name)
		b.WriteString(`,"owner":`)
		jsonText(&b, h.owner)
		fmt.Fprintf(&b, `,"token":%d,"ttl":%d`, h.token, h.ttl.Microseconds())
		if h.atMost > 0 {
			fmt.Fprintf(&b, `,"most":%d`, h.atMost.Microseconds())
		}
		b.WriteByte('}')
	}
	return b.String() + "]"
}

// waitersJSON is asJSON for waiters.
func waitersJSON(batch []*waiter) string {
	var b strings.Builder
	for i, w := range batch {
		b.WriteString(map[bool]string{true: `[{"name":`, false: `,{"name":`}[i == 0])
		jsonText(&b, w.name)
		b.WriteString(`,"owner":`)
		jsonText(&b, w.owner)
		b.WriteString(`,"holder":`)
		jsonText(&b, w.holder)
		fmt.Fprintf(&b, `,"ticket":%d,"waited":%d}`, w.ticket, time.Since(w.begun).Microseconds())
	}
	return b.String() + "]"
}

// jsonText writes a text as JSON.
func jsonText(b *strings.Builder, s string) {
	b.WriteByte('"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ':
			fmt.Fprintf(b, `\u%04x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
}
