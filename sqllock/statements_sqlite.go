package sqllock

import (
	"strconv"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// sqlite: there is one write lock for the whole file, so every changing statement
// runs between BEGIN IMMEDIATE and COMMIT, nothing is ever skipped, and a guard
// holds that one lock: renewal, release and a try of a free row wait for it, as for
// any transaction that writes; a try of a held row only reads. The clock is the
// machine's, in milliseconds.
func sqlite(table, tickets string) statements {
	const now = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
	sql := func(text string) stmt {
		return compile(sqldb.SQLite, strings.NewReplacer("$locks", table, "$tickets", tickets, "$now", now, "$token", "max(token + 1, "+now+")",
			"$free", "expires_at <= "+now+" AND hold_until <= "+now,
			"$mine", "name = {name} AND slot = 0 AND owner = {owner} AND token = {token} AND expires_at > 0").Replace(text))
	}
	const left = "max(expires_at, hold_until) - " + now
	take := sql(`UPDATE $locks SET owner = NULL, token = $token, acquired_at = $now, freed_at = $now, expires_at = 0, waited_since = NULL, holder = {holder}
WHERE name = {name} AND slot = 0 AND $free RETURNING token`)
	const batch = "(SELECT value ->> 'name' AS name, value ->> 'owner' AS owner, value ->> 'token' AS token, value ->> 'ttl' AS ttl, value ->> 'most' AS most FROM json_each(?1)) m"
	const mine = "l.name = m.name AND l.slot = 0 AND l.owner = m.owner AND l.token = m.token AND l.expires_at > 0"
	acquire := func(hold string) stmt {
		return sql(`UPDATE $locks SET owner = {owner}, token = $token, acquired_at = $now, expires_at = $now + {ttl}, holder = {holder}` + hold + `
WHERE name = {name} AND slot = 0 AND $free RETURNING token`)
	}
	return statements{
		returning:   true,
		acquire:     acquire(""),
		acquireHold: acquire(", hold_until = $now + {hold}"),
		look:        sql(`SELECT owner, token, holder, acquired_at, ` + left + ` FROM $locks WHERE name = {name} AND slot = 0`),
		touch:       sql(`INSERT INTO $locks (name, freed_at) VALUES ({name}, $now) ON CONFLICT (name, slot) DO NOTHING`),
		touchTx:     sql(`INSERT INTO $locks (name, freed_at) VALUES ({name}, $now) ON CONFLICT (name, slot) DO NOTHING`),
		settle:      sql(`SELECT token FROM $locks WHERE name = {name} AND slot = 0 AND owner = {owner} AND expires_at > 0`),
		release:     sql(`UPDATE $locks SET expires_at = 0, freed_at = $now WHERE $mine`),
		releaseTx:   sql(`UPDATE $locks SET expires_at = 0, freed_at = $now WHERE $mine`),
		extend:      sql(`UPDATE $locks SET expires_at = $now + {ttl} WHERE $mine`),
		// A SELECT pins nothing against a writer of the write-ahead log: the guard
		// writes, and so has the one lock until the transaction ends.
		guardWrite: sql(`UPDATE $locks SET owner = owner WHERE $mine`),
		acquireTx:  take,
		tryTx:      take,
		list:       sql(`SELECT name, owner, token, holder, acquired_at, ` + left + ` FROM $locks WHERE slot = 0 AND NOT ($free) ORDER BY name`),
		force: sql(`UPDATE $locks SET owner = NULL, token = $token, expires_at = 0, hold_until = 0, freed_at = $now
WHERE name = {name} AND slot = 0 AND token = {token} AND NOT ($free)`),
		gc: sql(`DELETE FROM $locks WHERE (name, slot) IN (
	SELECT name, slot FROM $locks WHERE max(expires_at, hold_until, coalesce(freed_at, 0)) < $now - {age} LIMIT ` + strconv.Itoa(gcBatch) + `)`),
		renew: func(all []renewal) (string, []any) {
			return `UPDATE ` + table + ` AS l SET expires_at = min(` + now + ` + m.ttl, coalesce(l.acquired_at + m.most, 9223372036854775807))
FROM ` + batch + ` WHERE ` + mine + ` RETURNING name, token`, []any{asJSON(all)}
		},
		renewed: func(all []renewal) (string, []any) {
			return `SELECT l.name, l.token, 0 FROM ` + batch + ` JOIN ` + table + ` l ON ` + mine, []any{asJSON(all)}
		},
		waiters: sql(`SELECT name, ticket, created_at, holder FROM $tickets WHERE expires_at > $now`),
		// One statement for new rows and old ones, as on PostgreSQL. WHERE true: else
		// the parser takes ON for that of a join.
		show: func(batch []*waiter, ttl int64) (string, []any) {
			return `INSERT INTO ` + tickets + ` (name, ticket, owner, created_at, expires_at, holder)
SELECT value ->> 'name', value ->> 'ticket', value ->> 'owner', ` + now + ` - (value ->> 'waited'), ` + now + ` + ?2, value ->> 'holder' FROM json_each(?1) WHERE true
ON CONFLICT (name, ticket) DO UPDATE SET expires_at = excluded.expires_at`, []any{waitersJSON(batch), ttl}
		},
		hide: func(batch []*waiter, _ int64) (string, []any) {
			return `DELETE FROM ` + tickets + ` WHERE (name, ticket) IN (SELECT value ->> 'name', value ->> 'ticket' FROM json_each(?1))`, []any{waitersJSON(batch)}
		},
		gcWaiters: sql(`DELETE FROM $tickets WHERE (name, ticket) IN (
	SELECT name, ticket FROM $tickets WHERE ticket < 0 AND expires_at < $now - {age} LIMIT ` + strconv.Itoa(gcBatch) + `)`),
	}
}
