package joblock

import (
	"strconv"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// mysql: MySQL and MariaDB. UTC_TIMESTAMP(6) is fixed before an UPDATE waits for the
// row (somebody switches the job off): it then judges by a clock that is a little late,
// which can say "not due" too long, and never "due" too early.
//
// start changes last_run always, so its count does not hang on the DSN's
// clientFoundRows. It reads no column that it has assigned before.
func mysql(kind sqldb.Kind, jobs, runs string) statements {
	text := strings.NewReplacer("$jobs", jobs, "$runs", runs, "$now", "UTC_TIMESTAMP(6)",
		"$due", "(j.last_start IS NULL OR {wait} = 0 OR UTC_TIMESTAMP(6) >= j.last_start + INTERVAL {wait} MICROSECOND OR {retry} = 1 AND NOT (j.last_outcome <=> 'ok'))",
		"$rest", "COALESCE(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), j.last_start) + {hold}, 0)",
		"$effective", "CASE WHEN outcome = 'running' AND lease_until < UTC_TIMESTAMP(6) THEN 'abandoned' ELSE outcome END")
	sql := func(s string) stmt { return compile(kind, text.Replace(s)) }
	return statements{
		// What is there already is a duplicate key: IGNORE would make warnings of all errors.
		make: sql(`INSERT INTO $jobs (name, created_at) VALUES ({name}, $now)`),
		state: sql(`SELECT j.disabled, j.note, j.last_run, j.last_token, j.last_start, $due, j.last_start + INTERVAL {wait} MICROSECOND,
	CASE WHEN {hold} > 0 THEN $rest ELSE 0 END, r.host, r.pid
FROM $jobs j LEFT JOIN $runs r ON r.id = j.last_run WHERE j.name = {name}`),
		start: sql(`UPDATE $jobs j SET j.period_us = {period}, j.last_run = {id}, j.last_token = {token}, j.last_start = $now, j.last_end = NULL, j.last_outcome = NULL
WHERE j.name = {name} AND NOT j.disabled AND ({token} = 0 OR j.last_token < {token})
	AND $due AND ({hold} = 0 OR $rest <= 0)`),
		insert: sql(`INSERT INTO $runs (id, job, token, owner, host, address, pid, started_at, lease_until, outcome, note)
SELECT {id}, j.name, {token}, {owner}, {host}, {address}, {pid}, j.last_start, $now + INTERVAL {ttl} MICROSECOND, 'running', {note}
FROM $jobs j WHERE j.name = {name}`),
		abandon: sql(`UPDATE $runs SET outcome = 'abandoned' WHERE id = {last} AND outcome = 'running'`),
		beat:    sql(`UPDATE $runs SET lease_until = $now + INTERVAL {ttl} MICROSECOND WHERE id = {id} AND outcome = 'running'`),
		endJob:  sql(`UPDATE $jobs SET last_end = $now, last_outcome = {outcome} WHERE name = {name} AND last_run = {id} AND (last_end IS NULL OR last_outcome = {was})`),
		endRun: sql(`UPDATE $runs SET outcome = {outcome}, finished_at = $now, exit_code = {code}, error = {error}
WHERE id = {id} AND outcome IN ('running', 'abandoned', {was})`),
		find:      sql(`SELECT COUNT(*) FROM $runs WHERE id = {id}`),
		disable:   sql(`UPDATE $jobs SET disabled = 1, disabled_at = $now, note = {note} WHERE name = {name}`),
		enable:    sql(`UPDATE $jobs SET disabled = 0, disabled_at = NULL, note = NULL WHERE name = {name}`),
		runs:      text.Replace(`SELECT id, job, token, owner, host, address, pid, started_at, finished_at, $effective, exit_code, error, note FROM $runs WHERE true$where ORDER BY started_at DESC, id LIMIT $limit`),
		ofJob:     ` AND job = {job}`,
		ofOutcome: text.Replace(` AND $effective = {outcome}`),
		notOlds:   text.Replace(` AND started_at >= $now - INTERVAL {age} MICROSECOND`),
		nextJob:   sql(`SELECT job FROM $runs WHERE job > {job} ORDER BY job LIMIT 1`),
		old: sql(`SELECT id FROM $runs WHERE job = {job} AND started_at < $now - INTERVAL {age} MICROSECOND AND NOT (outcome = 'running' AND lease_until >= $now)
ORDER BY started_at LIMIT ` + strconv.Itoa(pruneBatch)),
		table: runs,
	}
}
