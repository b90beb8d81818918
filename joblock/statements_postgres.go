package joblock

import (
	"strconv"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// postgres: whether the job is due is decided in the WHERE of the UPDATE that notes the
// start, by clock_timestamp(); now() would be the start of the transaction. If the
// UPDATE has to wait for the row (somebody switches the job off), the WHERE is looked at
// again.
//
// start is what the machines agree upon, so it must be durable: the transaction is as
// synchronous as the session says, and one whose commit is forgotten in a crash of the
// server may be run again.
func postgres(jobs, runs string) statements {
	text := strings.NewReplacer("$jobs", jobs, "$runs", runs, "$now", "clock_timestamp()",
		"$due", "(j.last_start IS NULL OR {wait}::bigint = 0 OR clock_timestamp() >= j.last_start + {wait}::bigint * interval '1 microsecond' OR {retry}::bigint = 1 AND j.last_outcome IS DISTINCT FROM 'ok')",
		"$rest", "coalesce((extract(epoch FROM j.last_start - clock_timestamp()) * 1000000)::bigint + {hold}::bigint, 0)",
		"$effective", "CASE WHEN outcome = 'running' AND lease_until < clock_timestamp() THEN 'abandoned' ELSE outcome END")
	sql := func(s string) stmt { return compile(sqldb.Postgres, text.Replace(s)) }
	return statements{
		make: sql(`INSERT INTO $jobs (name, created_at) VALUES ({name}::text, $now) ON CONFLICT (name) DO NOTHING`),
		state: sql(`SELECT j.disabled, j.note, j.last_run, j.last_token, j.last_start, $due, j.last_start + {wait}::bigint * interval '1 microsecond',
	CASE WHEN {hold}::bigint > 0 THEN $rest ELSE 0 END, r.host, r.pid
FROM $jobs j LEFT JOIN $runs r ON r.id = j.last_run WHERE j.name = {name}::text`),
		start: sql(`UPDATE $jobs j SET period_us = {period}::bigint, last_run = {id}::text, last_token = {token}::bigint, last_start = $now, last_end = NULL, last_outcome = NULL
WHERE j.name = {name}::text AND NOT j.disabled AND ({token}::bigint = 0 OR j.last_token < {token}::bigint)
	AND $due AND ({hold}::bigint = 0 OR $rest <= 0)`),
		insert: sql(`INSERT INTO $runs (id, job, token, owner, host, address, pid, started_at, lease_until, outcome, note)
SELECT {id}::text, j.name, {token}::bigint, {owner}::text, {host}::text, {address}::text, {pid}::bigint, j.last_start, $now + {ttl}::bigint * interval '1 microsecond', 'running', {note}::text
FROM $jobs j WHERE j.name = {name}::text`),
		abandon: sql(`UPDATE $runs SET outcome = 'abandoned' WHERE id = {last}::text AND outcome = 'running'`),
		beat:    sql(`UPDATE $runs SET lease_until = $now + {ttl}::bigint * interval '1 microsecond' WHERE id = {id}::text AND outcome = 'running'`),
		endJob: sql(`UPDATE $jobs SET last_end = $now, last_outcome = {outcome}::text
WHERE name = {name}::text AND last_run = {id}::text AND (last_end IS NULL OR last_outcome = {was}::text)`),
		endRun: sql(`UPDATE $runs SET outcome = {outcome}::text, finished_at = $now, exit_code = {code}::integer, error = {error}::text
WHERE id = {id}::text AND outcome IN ('running', 'abandoned', {was}::text)`),
		find:      sql(`SELECT count(*) FROM $runs WHERE id = {id}::text`),
		disable:   sql(`UPDATE $jobs SET disabled = true, disabled_at = $now, note = {note}::text WHERE name = {name}::text`),
		enable:    sql(`UPDATE $jobs SET disabled = false, disabled_at = NULL, note = NULL WHERE name = {name}::text`),
		runs:      text.Replace(`SELECT id, job, token, owner, host, address, pid, started_at, finished_at, $effective, exit_code, error, note FROM $runs WHERE true$where ORDER BY started_at DESC, id LIMIT $limit`),
		ofJob:     ` AND job = {job}::text`,
		ofOutcome: text.Replace(` AND $effective = {outcome}::text`),
		notOlds:   text.Replace(` AND started_at >= $now - {age}::bigint * interval '1 microsecond'`),
		nextJob:   sql(`SELECT job FROM $runs WHERE job > {job}::text ORDER BY job LIMIT 1`),
		old: sql(`SELECT id FROM $runs WHERE job = {job}::text AND started_at < $now - {age}::bigint * interval '1 microsecond' AND NOT (outcome = 'running' AND lease_until >= $now)
ORDER BY started_at LIMIT ` + strconv.Itoa(pruneBatch)),
		table: runs,
	}
}
