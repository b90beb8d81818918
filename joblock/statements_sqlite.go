package joblock

import (
	"strconv"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// sqlite: the clock is the machine's, in milliseconds: several processes on one
// machine have the same. Every transaction that writes has the one write lock.
func sqlite(jobs, runs string) statements {
	const now = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
	text := strings.NewReplacer("$jobs", jobs, "$runs", runs, "$now", now,
		"$due", "(j.last_start IS NULL OR {wait} = 0 OR "+now+" >= j.last_start + {wait} OR {retry} = 1 AND j.last_outcome IS NOT 'ok')",
		"$rest", "coalesce(j.last_start + {hold} - "+now+", 0)",
		"$effective", "CASE WHEN outcome = 'running' AND lease_until < "+now+" THEN 'abandoned' ELSE outcome END")
	sql := func(s string) stmt { return compile(sqldb.SQLite, text.Replace(s)) }
	return statements{
		make: sql(`INSERT INTO $jobs (name, created_at) VALUES ({name}, $now) ON CONFLICT (name) DO NOTHING`),
		state: sql(`SELECT j.disabled, j.note, j.last_run, j.last_token, j.last_start, $due, j.last_start + {wait},
	CASE WHEN {hold} > 0 THEN $rest ELSE 0 END, r.host, r.pid
FROM $jobs j LEFT JOIN $runs r ON r.id = j.last_run WHERE j.name = {name}`),
		start: sql(`UPDATE $jobs AS j SET period_us = {period}, last_run = {id}, last_token = {token}, last_start = $now, last_end = NULL, last_outcome = NULL
WHERE j.name = {name} AND NOT j.disabled AND ({token} = 0 OR j.last_token < {token})
	AND $due AND ({hold} = 0 OR $rest <= 0)`),
		insert: sql(`INSERT INTO $runs (id, job, token, owner, host, address, pid, started_at, lease_until, outcome, note)
SELECT {id}, j.name, {token}, {owner}, {host}, {address}, {pid}, j.last_start, $now + {ttl}, 'running', {note}
FROM $jobs j WHERE j.name = {name}`),
		abandon: sql(`UPDATE $runs SET outcome = 'abandoned' WHERE id = {last} AND outcome = 'running'`),
		beat:    sql(`UPDATE $runs SET lease_until = $now + {ttl} WHERE id = {id} AND outcome = 'running'`),
		endJob:  sql(`UPDATE $jobs SET last_end = $now, last_outcome = {outcome} WHERE name = {name} AND last_run = {id} AND (last_end IS NULL OR last_outcome = {was})`),
		endRun: sql(`UPDATE $runs SET outcome = {outcome}, finished_at = $now, exit_code = {code}, error = {error}
WHERE id = {id} AND outcome IN ('running', 'abandoned', {was})`),
		find:      sql(`SELECT count(*) FROM $runs WHERE id = {id}`),
		disable:   sql(`UPDATE $jobs SET disabled = 1, disabled_at = $now, note = {note} WHERE name = {name}`),
		enable:    sql(`UPDATE $jobs SET disabled = 0, disabled_at = NULL, note = NULL WHERE name = {name}`),
		runs:      text.Replace(`SELECT id, job, token, owner, host, address, pid, started_at, finished_at, $effective, exit_code, error, note FROM $runs WHERE true$where ORDER BY started_at DESC, id LIMIT $limit`),
		ofJob:     ` AND job = {job}`,
		ofOutcome: text.Replace(` AND $effective = {outcome}`),
		notOlds:   text.Replace(` AND started_at >= $now - {age}`),
		nextJob:   sql(`SELECT job FROM $runs WHERE job > {job} ORDER BY job LIMIT 1`),
		old: sql(`SELECT id FROM $runs WHERE job = {job} AND started_at < $now - {age} AND NOT (outcome = 'running' AND lease_until >= $now)
ORDER BY started_at LIMIT ` + strconv.Itoa(pruneBatch)),
		table: runs,
	}
}
