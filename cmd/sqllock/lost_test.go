//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
)

// The lease of these tests: what is lost is lost within it.
const shortTTL = "2s"

// stubborn is a run whose command goes on until it is killed, whatever it is told.
func stubborn(db *dbtest.DB) []string {
	return append(beat(db, "0s", "--ttl", shortTTL), "stubborn")
}

// successor runs the next one, and compares when the two were at work.
func successor(t *testing.T, db *dbtest.DB, pid int) {
	t.Helper()
	start(t, db.DSN, beat(db, "50ms", "--ttl", shortTTL, "--wait", "60s")...).ends(0)
	gone(t, pid)
	if jobs, pairs := overlaps(t, db); jobs != 2 || pairs > 0 {
		t.Errorf("%d jobs were at work, %d pairs of them at the same time", jobs, pairs)
	}
}

// TestKilled: sqllock is killed as kill -9 does. Its command, which ignores SIGTERM,
// has ended before the next holder has the lock.
func TestKilled(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		beating(t, db)
		p := start(t, db.DSN, stubborn(db)...)
		pid := p.number("begun ")
		p.signal(syscall.SIGKILL)
		successor(t, db, pid)
		h := wantJSON[historyResult](t, 0, on(db, "history", "job")...)
		if len(h.Runs) != 2 || h.Runs[0].Outcome != "ok" || h.Runs[1].Outcome != "abandoned" {
			t.Errorf("the history is %+v", h.Runs)
		}
	})
}

// TestKilledPolitely: the command of a sqllock that was killed gets SIGTERM first, and
// at once, however long the lease.
func TestKilledPolitely(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	migrated(t, db)
	mark := t.TempDir() + "/mark"
	p := start(t, db.DSN, "run", "job", "--ttl", "10m", "--", "sh", "-c", `trap 'echo term >`+mark+`; exit' TERM; echo pid $$; while :; do sleep 0.02; done`)
	pid := p.number("pid ")
	p.signal(syscall.SIGKILL)
	gone(t, pid)
	if text, err := os.ReadFile(mark); err != nil || string(text) != "term\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestStopped: sqllock is stopped, as kill -STOP does, for longer than its lease.
func TestStopped(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		beating(t, db)
		p := start(t, db.DSN, stubborn(db)...)
		pid := p.number("begun ")
		p.signal(syscall.SIGSTOP)
		successor(t, db, pid)
		p.signal(syscall.SIGCONT)
		p.ends(exitLost)
	})
}

// TestDatabaseGone: the connection hangs, or is cut and never comes back.
func TestDatabaseGone(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"hangs", "is cut"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			kinds := []sqldb.Kind{sqldb.Postgres, sqldb.MySQL, sqldb.MariaDB}
			if way == "hangs" && !dbtest.Long() {
				kinds = kinds[:2] // it takes 15 s until the rest of sqllock gives up
			}
			dbtest.On(t, kinds, func(t *testing.T, db *dbtest.DB) {
				t.Parallel()
				beating(t, db)
				x := newProxy(t, db)
				p := start(t, x.dsn, stubborn(db)...)
				pid := p.number("begun ")
				if x.stop(); way == "is cut" {
					x.cut()
				}
				p.ends(exitLost)
				successor(t, db, pid)
			})
		})
	}
	t.Run("is busy/sqlite", func(t *testing.T) {
		db := dbtest.New(t, sqldb.SQLite)
		migrated(t, db)
		p := start(t, db.DSN, "run", "job", "--ttl", shortTTL, "--", "sh", "-c", `trap 'echo term; exit 0' TERM; echo begun; while :; do sleep 0.02; done`)
		p.sees("begun")
		tx, err := db.SQL.Begin() // _txlock=immediate
		if err != nil {
			t.Fatal(err)
		}
		p.sees("term") // early enough to end by itself
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		p.ends(exitLost)
	})
}

// TestTakenAway: who is told by the database that the lock is another's ends its
// command.
func TestTakenAway(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		p := start(t, db.DSN, "run", "job", "--ttl", shortTTL, "--", "sh", "-c", `trap 'echo term; exit 0' TERM; echo begun; while :; do sleep 0.02; done`)
		p.sees("begun")
		want(t, 0, on(db, "release", "job", "--force")...)
		p.sees("term")
		said := p.ends(exitLost)
		if !strings.Contains(said, "lost") {
			t.Errorf("said %s", said)
		}
		if h := wantJSON[historyResult](t, 0, on(db, "history", "job")...); h.Runs[0].Outcome != "lost" {
			t.Errorf("%+v", h.Runs)
		}
	})
}

// TestGuardianKilled: without its guardian the command is ended at once, and the lock
// is given back when nothing of it is left.
func TestGuardianKilled(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	beating(t, db)
	p := start(t, db.DSN, beat(db, "0s")...)
	pid, guardian := p.number("begun "), p.number("guardian ")
	if err := syscall.Kill(guardian, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if said := p.ends(exitInternal); !strings.Contains(said, "guardian") {
		t.Errorf("said %s", said)
	}
	gone(t, pid)
	start(t, db.DSN, "run", "job", "--", "true").ends(0)
}

// TestGuardianStopped: then it is sqllock that ends the command.
func TestGuardianStopped(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	beating(t, db)
	p := start(t, db.DSN, stubborn(db)...)
	pid, guardian := p.number("begun "), p.number("guardian ")
	if err := syscall.Kill(guardian, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	want(t, 0, on(db, "release", "job", "--force")...)
	gone(t, pid)
	p.ends(exitLost)
}

// proxy is the way to a server, which can be blocked.
type proxy struct {
	dsn     string
	mu      sync.Mutex
	conns   []net.Conn
	stopped chan struct{}
	l       net.Listener
}

func newProxy(t *testing.T, db *dbtest.DB) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x := &proxy{stopped: make(chan struct{}), l: l}
	var server string
	if db.Kind() == sqldb.Postgres {
		u, err := url.Parse(db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		server, u.Host = u.Host, l.Addr().String()
		x.dsn = u.String()
	} else {
		cfg, err := mysql.ParseDSN(db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		server, cfg.Addr = cfg.Addr, l.Addr().String()
		x.dsn = cfg.FormatDSN()
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", server)
			if err != nil {
				_ = c.Close()
				continue
			}
			x.mu.Lock()
			x.conns = append(x.conns, c, s)
			x.mu.Unlock()
			go x.copy(s, c)
			go x.copy(c, s)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		x.cut()
	})
	return x
}

func (x *proxy) copy(to io.Writer, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-x.stopped:
			return // what comes goes nowhere
		default:
		}
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// stop lets nothing through any more, in silence.
func (x *proxy) stop() { close(x.stopped) }

// cut closes all connections, and takes no further ones.
func (x *proxy) cut() {
	_ = x.l.Close()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.conns {
		_ = c.Close()
	}
}
