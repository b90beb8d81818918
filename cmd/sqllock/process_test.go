//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/internal/dsn"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// patience is how long a test waits for what has to come.
const patience = 40 * time.Second

// process is a sqllock of its own.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string // of stdout
	stderr said
	ended  chan struct{}
}

// said is what was written to stderr.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// says waits for a text on stderr.
func (p *process) says(text string) {
	p.t.Helper()
	for begun := time.Now(); !strings.Contains(p.stderr.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > patience {
			p.t.Fatalf("%q was never said: %s", text, p.stderr.String())
		}
	}
}

// quickExit: a process that is built with the race detector ends a second late without.
const quickExit = "GORACE=atexit_sleep_ms=0"

// sqllockProcess prepares one on a database; "" for none.
func sqllockProcess(t *testing.T, dsn string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], args...), lines: make(chan string, 1000), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childEnv+"=1", quickExit)
	if dsn != "" {
		p.cmd.Env = append(p.cmd.Env, envDSN+"="+dsn)
	}
	return p
}

// begin starts it. Whatever it is, it does not outlive the test.
func (p *process) begin() *process {
	p.t.Helper()
	p.cmd.Stderr = &p.stderr
	var err error
	if p.cmd.Stdin == nil {
		if p.stdin, err = p.cmd.StdinPipe(); err != nil {
			p.t.Fatal(err)
		}
	}
	var out io.Reader = strings.NewReader("")
	if p.cmd.Stdout == nil {
		if out, err = p.cmd.StdoutPipe(); err != nil {
			p.t.Fatal(err)
		}
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		close(p.lines)
		_ = p.cmd.Wait()
	}()
	p.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	return p
}

func start(t *testing.T, dsn string, args ...string) *process {
	t.Helper()
	return sqllockProcess(t, dsn, args...).begin()
}

// sees waits for a line of stdout with that prefix, and returns the rest.
func (p *process) sees(prefix string) string {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				<-p.ended
				p.t.Fatalf("it has ended (%v) without %q: %s", p.cmd.ProcessState, prefix, p.stderr.String())
			}
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				return strings.TrimSpace(rest)
			}
		case <-timeout:
			p.t.Fatalf("%q never came", prefix)
		}
	}
}

// number is sees for a line that ends with a number.
func (p *process) number(prefix string) int {
	p.t.Helper()
	n, err := strconv.Atoi(p.sees(prefix))
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// ends waits for its end, and compares its exit code.
func (p *process) ends(code int) string {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatal("it does not end")
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Fatalf("it has ended with %d (%v), want %d: %s", got, p.cmd.ProcessState, code, p.stderr.String())
	}
	return p.stderr.String()
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// gone waits until there is no such process. One that is nobody's child is reaped by
// init in its own time: a zombie is gone, too.
func gone(t *testing.T, pid int) {
	t.Helper()
	for begun := time.Now(); alive(pid); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatalf("the process %d does not end", pid)
		}
	}
}

func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// job is the command that is run: it writes down when it was at work.
//
//	__job beat DSN DURATION [stubborn]   0s: until it is killed
//	__job attach DSN
func job(args []string) int {
	fail := func(err error) int {
		fmt.Println("failed", err)
		return 9
	}
	if slices.Contains(args, "stubborn") {
		signal.Ignore(syscall.SIGTERM)
	}
	d, err := dsn.Parse(args[1])
	if err != nil {
		return fail(err)
	}
	ctx := context.Background()
	db, closePool, err := d.Open(ctx)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = closePool() }()
	if args[0] == "attach" {
		return attach(ctx, db, fail)
	}
	last, err := time.ParseDuration(args[2])
	if err != nil {
		return fail(err)
	}
	for begun, first := time.Now(), true; last == 0 || time.Since(begun) < last; first = false {
		if _, err := db.Exec(ctx, fmt.Sprintf("INSERT INTO beats (who, at) VALUES (%d, %d)", os.Getpid(), time.Now().UnixMicro())); err != nil {
			return fail(err)
		}
		if first {
			fmt.Println("begun", os.Getpid())
			fmt.Println("guardian", os.Getppid())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return 0
}

// attach uses the lock under which it runs.
func attach(ctx context.Context, db *sqldb.DB, fail func(error) int) int {
	token, err := strconv.ParseInt(os.Getenv("SQLLOCK_TOKEN"), 10, 64)
	if err != nil {
		return fail(err)
	}
	locker, err := sqllock.New(ctx, db)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = locker.Close() }()
	l, err := locker.Attach(ctx, os.Getenv("SQLLOCK_NAME"), os.Getenv("SQLLOCK_OWNER"), token)
	if err != nil {
		return fail(err)
	}
	if err := db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error { return l.Guard(ctx, tx) }); err != nil {
		return fail(err)
	}
	fmt.Println("guarded", l.Token())
	return 0
}

// beating makes the table in which jobs write down when they were at work.
func beating(t *testing.T, db *dbtest.DB) {
	t.Helper()
	migrated(t, db)
	db.MustExec(t, "CREATE TABLE beats (who bigint NOT NULL, at bigint NOT NULL)")
}

// overlaps counts the pairs of jobs that were at work at the same time.
func overlaps(t *testing.T, db *dbtest.DB) (jobs, pairs int) {
	t.Helper()
	rows, err := db.SQL.Query("SELECT who, min(at), max(at) FROM beats GROUP BY who")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	type span struct{ from, to int64 }
	var all []span
	for rows.Next() {
		var who int64
		var s span
		if err := rows.Scan(&who, &s.from, &s.to); err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			if s.from <= o.to && o.from <= s.to {
				pairs++
			}
		}
		all = append(all, s)
	}
	if err := rows.Err(); err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.Fatal(err)
	}
	return len(all), pairs
}

// beat are the arguments of a run whose command writes down when it was at work.
func beat(db *dbtest.DB, last string, flags ...string) []string {
	return append(append([]string{"run", "job"}, flags...), "--", os.Args[0], jobArg, "beat", db.DSN, last)
}
