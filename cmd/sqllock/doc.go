// Sqllock runs commands on one machine at a time, under a lock in a SQL database, and
// looks after the locks and the history of the runs.
//
//	sqllock run NAME -- COMMAND  run a command under the lock of a job
//	sqllock ls                   the locks that are held, and who waits
//	sqllock show NAME            holder, waiters, last runs
//	sqllock history [JOB]        the runs
//	sqllock release NAME         take a lock away from its holder
//	sqllock disable JOB          switch a job off, on all machines
//	sqllock enable JOB           switch it on again
//	sqllock doctor               what will not work well with this database
//	sqllock gc                   remove what is old
//
// The database is named by --dsn or SQLLOCK_DSN; without them it is an SQLite file of
// this user and machine. Each command's --help has examples.
//
// # Contract
//
// Results go to stdout, messages to stderr. Exit codes are 0 done, 1 failed, 2 wrong
// usage, but for run, which ends as its command does:
//
//	0-255  as the command; 128+n if the signal n has killed it, or ended the waiting
//	64     wrong usage; nothing was done
//	69     the database cannot be reached, or not be used
//	70     internal: the guardian of the command has died, and the command was ended
//	75     not run: the lock is held, the job is not due, or disabled
//	       (--conflict-exit-code)
//	76     the lock was lost: the command was ended, or not begun
//	126    the command cannot be executed
//	127    there is no such command
//
// With --json a command that ends with 0, and doctor also with 1, writes one JSON
// object to stdout (ls --watch: one after the other); after another code stdout is
// empty. run, whose stdout is its command's, writes one line to stderr when it ends,
// unless its command line was wrong. Fields may be added; those that are here keep name
// and meaning, and are always there. Times are RFC 3339 in UTC, by the database's
// clock. Every object but run's has "database" (postgres, mysql, mariadb, sqlite),
// "schema" and "table_prefix".
//
//	run      {"name": string, "lock": its lock's name, "ran": bool, "token": n,
//	          "exit_code": n, "lost": bool,
//	          "reason": "" or "held"|"not_due"|"disabled"|"error", if it did not run,
//	          "holder": HOLDER or null, "next": when it is due, or null,
//	          "message": string}
//	ls       {"now": time, "locks": [LOCK, …], "waiting": [WAITER, …]}
//	show     {"now": time, "name": string, "locks": [LOCK, …], "waiting": [WAITER, …],
//	          "job": null or {"disabled": bool, "disabled_at": time or null,
//	                  "note": string, "period_ms": n or null, "last_start": time or null},
//	          "runs": [RUN, …]}
//	history  {"now": time, "runs": [RUN, …]}
//	release  {"released": LOCK as it was}
//	disable, enable  {"job": string, "disabled": bool, "note": string}
//	doctor   {"ok": no check says fail, "checks": [{"name": string,
//	          "state": "ok"|"warn"|"fail", "value": string, "advice": string}, …]}
//	gc       {"locks": rows of locks removed, "runs": runs removed}
//
//	HOLDER   {"host": string, "pid": n, "label": string}
//	LOCK     {"name": string, "token": n, "owner": string, "since": time or null,
//	          "left_ms": of its lease, or until its --at-least has passed,
//	          "holder": HOLDER, "waiters": count}
//	WAITER   {"name": of the lock, "ticket": its place in the queue, 0 if it polls,
//	          "since": time, "holder": HOLDER}
//	RUN      {"id": string, "job": string, "token": n, "host": string,
//	          "address": string, "pid": n, "started": time, "finished": time or null,
//	          "duration_ms": n or null, "outcome": "running"|"ok"|"failed"|
//	          "timed_out"|"lost"|"abandoned", "exit_code": n, or null: it has
//	          ended with 0, or was no command, "error": string, "note": string}
package main
