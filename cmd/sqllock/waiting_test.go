//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/joblock"
)

// showsWaiting waits until ls shows so many who wait.
func showsWaiting(t *testing.T, db *dbtest.DB, n int) lsResult {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		r := wantJSON[lsResult](t, 0, on(db, "ls")...)
		if len(r.Waiting) == n {
			return r
		}
		if time.Since(begun) > patience {
			t.Fatalf("%d are to be shown: %+v", n, r.Waiting)
		}
	}
}

// rowsOf is how many rows there are of waiters that expire within a time.
func rowsOf(t *testing.T, db *dbtest.DB, within time.Duration) (n int) {
	t.Helper()
	at := db.Ago(nowSQL(db.Kind()), -within)
	if err := db.QueryRow(t.Context(), "SELECT count(*) FROM "+db.Table("tickets")+" WHERE expires_at <= "+at).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestWaiting: ls and show say who waits with run --wait, and no longer when it does
// not: when it runs, has given up, was told to end, or is dead.
func TestWaiting(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		holder := start(t, db.DSN, "run", "job", "--label", "first", "--", "sh", "-c", "echo begun; read x")
		holder.sees("begun")
		wait := func(label, d, say string) *process {
			t.Helper()
			p := start(t, db.DSN, "run", "job", "--label", label, "--wait", d, "--", "sh", "-c", "echo "+say+"; read x")
			p.says("waiting for up to " + d)
			return p
		}

		// Who has waited for too short is not shown.
		begun := time.Now()
		start(t, db.DSN, "run", "job", "--wait", "300ms", "--", "true").ends(exitNotHad)
		if n := rowsOf(t, db, time.Hour); n != 0 {
			t.Errorf("%d rows after a wait of %v", n, time.Since(begun))
		}

		next := wait("second", "10m", "ran")
		r := showsWaiting(t, db, 1)
		w := r.Waiting[0]
		since := r.Now.Sub(w.Since)
		if w.Name != joblock.LockName("job") || w.Ticket != 0 || since < time.Second || since > time.Since(begun) ||
			w.Holder != (holderJSON{Host: host(t), PID: next.cmd.Process.Pid, Label: "second"}) {
			t.Errorf("%+v, now %v", w, r.Now)
		}
		if len(r.Locks) != 1 || r.Locks[0].Waiters != 1 || r.Locks[0].Holder.PID != holder.cmd.Process.Pid {
			t.Errorf("%+v", r.Locks)
		}
		if s := wantJSON[showResult](t, 0, on(db, "show", "job")...); len(s.Waiting) != 1 || s.Waiting[0].Holder != w.Holder || len(s.Locks) != 1 || s.Locks[0].Waiters != 1 {
			t.Errorf("%+v", s)
		}
		for _, command := range [][]string{{"ls"}, {"show", "job"}} {
			out, _ := want(t, 0, on(db, command...)...)
			line := ""
			for l := range strings.Lines(out) {
				if strings.Contains(l, "waiting") {
					line += l
				}
			}
			for _, text := range []string{"second", host(t), fmt.Sprint(next.cmd.Process.Pid)} {
				if strings.Count(line, "\n") != 1 || !strings.Contains(line, text) {
					t.Errorf("%v: %q is not in %q: %s", command, text, line, out)
				}
			}
		}

		// A killed one is shown until its row has expired, which is soon.
		killed := wait("killed", "10m", "never")
		showsWaiting(t, db, 2)
		killed.signal(syscall.SIGKILL)
		<-killed.ended
		if n := rowsOf(t, db, 16*time.Second); n != 2 {
			t.Errorf("%d rows expire within 16s", n)
		}
		db.MustExec(t, "UPDATE "+db.Table("tickets")+" SET expires_at = "+longAgo(db.Kind())+fmt.Sprintf(" WHERE holder LIKE '%%\"pid\":%d,%%'", killed.cmd.Process.Pid))
		if left := showsWaiting(t, db, 1).Waiting[0]; left.Holder.Label != "second" {
			t.Errorf("%+v", left)
		}
		want(t, 0, on(db, "gc")...)
		if n := rowsOf(t, db, time.Hour); n != 1 {
			t.Errorf("%d rows after gc", n)
		}

		// One that ends by itself leaves none: it has given up, or got a signal.
		told := wait("told", "10m", "never")
		showsWaiting(t, db, 2)
		told.signal(syscall.SIGTERM)
		told.ends(exitSignal + int(syscall.SIGTERM))
		if n := rowsOf(t, db, time.Hour); n != 1 {
			t.Errorf("%d rows when one was told to end", n)
		}
		gaveUp := wait("patient", "5s", "never")
		showsWaiting(t, db, 2)
		gaveUp.ends(exitNotHad)
		if n := rowsOf(t, db, time.Hour); n != 1 {
			t.Errorf("%d rows when one has given up", n)
		}

		// With the lock it does not wait any more.
		fmt.Fprintln(holder.stdin)
		holder.ends(0)
		next.sees("ran")
		if r := showsWaiting(t, db, 0); len(r.Locks) != 1 || r.Locks[0].Waiters != 0 || r.Locks[0].Holder.Label != "second" {
			t.Errorf("%+v", r.Locks)
		}
		fmt.Fprintln(next.stdin)
		next.ends(0)
		if n := rowsOf(t, db, time.Hour); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}
