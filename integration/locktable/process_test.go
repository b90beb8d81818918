package locktable_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// What makes of the test binary one of the processes of a test, and what that needs to know. The DSN comes through
// standard input, where nobody else sees the password.
const (
	roleEnv   = "LOCKTABLE_ROLE"
	kindEnv   = "LOCKTABLE_KIND"
	roundsEnv = "LOCKTABLE_ROUNDS"
)

// processTTL is the TTL of the locks that processes hold.
const processTTL = time.Second

// drivers are those of database/sql that processes use.
var drivers = map[string]string{"postgres": "pgx", "mysql": "mysql", "mariadb": "mysql", "sqlite": "sqlite"}

func kindOf(name string) sqldb.Kind {
	for _, k := range sqldb.Kinds() {
		if k.String() == name {
			return k
		}
	}
	panic("no such kind: " + name)
}

// play is one of the processes.
func play(role string) error {
	in := bufio.NewScanner(os.Stdin)
	if !in.Scan() {
		return errors.New("no DSN came")
	}
	ctx := context.Background()
	kind := kindOf(os.Getenv(kindEnv))
	db, err := dial(ctx, kind, in.Text())
	if err != nil {
		return err
	}
	l, err := sqllock.New(ctx, db, lock.TTL(processTTL))
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	switch role {
	case "holder":
		return playHolder(ctx, db, l, in)
	case "counter":
		return playCounter(ctx, db, l)
	}
	return fmt.Errorf("no such role: %s", role)
}

// playHolder holds a lock, says so, and does what it is told, each in a transaction of its own that it answers for.
func playHolder(ctx context.Context, db *sqldb.DB, locker lock.Locker, in *bufio.Scanner) error {
	l, err := locker.Acquire(ctx, "job")
	if err != nil {
		return err
	}
	fmt.Println("held", l.Token())
	for in.Scan() {
		word := in.Text()
		err := db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			if word != "unguarded" {
				if err := l.Guard(ctx, tx); err != nil {
					return err
				}
			}
			if word == "pin" { // and be stopped between the guard and the write
				fmt.Println("pinned")
				in.Scan()
			}
			_, err := tx.Exec(ctx, "INSERT INTO written (what) VALUES ('"+word+"')")
			return err
		})
		switch {
		case errors.Is(err, lock.ErrLost):
			fmt.Println("lost")
		case err != nil:
			fmt.Println("error", err)
		default:
			fmt.Println("written")
		}
	}
	return in.Err()
}

// playCounter increments a row in two steps, under the lock, by several goroutines, and says so after each.
func playCounter(ctx context.Context, db *sqldb.DB, locker lock.Locker) error {
	rounds, err := strconv.Atoi(os.Getenv(roundsEnv))
	if err != nil {
		return err
	}
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for g := range errs {
		wg.Go(func() {
			for range rounds {
				errs[g] = lock.Do(ctx, locker, "job", func(ctx context.Context, l *lock.Lock) error {
					var n int64
					if err := db.QueryRow(ctx, "SELECT n FROM counter").Scan(&n); err != nil {
						return err
					}
					time.Sleep(2 * time.Millisecond)
					_, err := db.Change(ctx, sqldb.Change{Op: "count", Query: fmt.Sprintf("UPDATE counter SET n = %d", n+1)})
					if err == nil {
						fmt.Println("counted")
					}
					return err
				})
				if errs[g] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// process is one of them, as the test sees it.
type process struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func start(t testing.TB, fresh *dbtest.DB, role string, env ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(exe)}
	p.cmd.Env = append(append(os.Environ(), roleEnv+"="+role, kindEnv+"="+fresh.Kind().String()), env...)
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		_ = p.cmd.Wait()
	})
	p.say(fresh.DSN)
	return p
}

func (p *process) say(word string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, word); err != nil {
		p.t.Error(err)
	}
}

// hear returns the process's next line.
func (p *process) hear() string {
	if !p.out.Scan() {
		return fmt.Sprintf("the process has ended: %v", p.out.Err())
	}
	return p.out.Text()
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

func holder(t *testing.T, fresh *dbtest.DB) (p *process, token int64) {
	t.Helper()
	fresh.MustExec(t, "CREATE TABLE written (what VARCHAR(20))")
	p = start(t, fresh, "holder")
	text, ok := strings.CutPrefix(p.hear(), "held ")
	token, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil {
		t.Fatalf("the holder says %q", text)
	}
	return p, token
}

// written counts what was written.
func written(t *testing.T, fresh *dbtest.DB, what string) (n int) {
	t.Helper()
	if err := fresh.QueryRow(t.Context(), "SELECT COUNT(*) FROM written WHERE what = '"+what+"'").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A holder that is killed keeps others from the lock for no longer than its TTL.
func TestKilledHolder(t *testing.T) {
	each(t, sqldb.Kinds(), func(t *testing.T, fresh *dbtest.DB) {
		p, token := holder(t, fresh)
		l := locker(t, fresh.DB)
		if _, err := l.Acquire(t.Context(), "job", lock.Wait(2*processTTL)); !errors.Is(err, lock.ErrHeld) {
			t.Fatalf("while it lives: %v", err)
		}
		p.signal(syscall.SIGKILL)
		begun := time.Now()
		next := acquire(t, l, "job")
		if took := time.Since(begun); took > processTTL+slack {
			t.Errorf("it took %v", took)
		}
		if next.Token() <= token {
			t.Errorf("token %d after %d", next.Token(), token)
		}
		release(t, next)
	})
}

// A holder that is stopped beyond its TTL has lost the lock when it goes on: its guarded write is refused. Without the
// guard, the write lands, which is what the guard is for.
func TestStoppedHolder(t *testing.T) {
	each(t, sqldb.Kinds(), func(t *testing.T, fresh *dbtest.DB) {
		p, token := holder(t, fresh)
		l := locker(t, fresh.DB)
		p.signal(syscall.SIGSTOP)
		next := acquire(t, l, "job")
		if next.Token() <= token {
			t.Errorf("token %d after %d", next.Token(), token)
		}
		p.signal(syscall.SIGCONT)
		p.say("guarded")
		if got := p.hear(); got != "lost" || written(t, fresh, "guarded") != 0 {
			t.Errorf("the guarded write answers %q", got)
		}
		p.say("unguarded")
		if got := p.hear(); got != "written" || written(t, fresh, "unguarded") != 1 {
			t.Errorf("the unguarded write answers %q: the control does not control", got)
		}
		release(t, next)
	})
}

// A holder that is stopped between its guard and its commit keeps the lock, for as long as it takes.
func TestStoppedBehindItsGuard(t *testing.T) {
	each(t, []sqldb.Kind{sqldb.Postgres, sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, fresh *dbtest.DB) {
		p, _ := holder(t, fresh)
		l := locker(t, fresh.DB)
		p.say("pin")
		if got := p.hear(); got != "pinned" {
			t.Fatalf("it says %q", got)
		}
		p.signal(syscall.SIGSTOP)
		if got, err := l.Acquire(t.Context(), "job", lock.Wait(3*processTTL)); !errors.Is(err, lock.ErrHeld) {
			t.Fatalf("a lock that is pinned was had: %v, %v", got, err)
		}
		p.signal(syscall.SIGCONT)
		p.say("write")
		if got := p.hear(); got != "written" {
			t.Errorf("it says %q", got)
		}
		release(t, acquire(t, l, "job"))
	})
}

// Several processes, each with goroutines, share an SQLite file; one of them is killed.
func TestProcessesOnOneFile(t *testing.T) {
	fresh := migrated(t, sqldb.SQLite)
	fresh.MustExec(t, "CREATE TABLE counter (n INTEGER NOT NULL)", "INSERT INTO counter VALUES (0)")
	const processes, rounds = 4, 3
	counted := make([]int, processes+1)
	var wg sync.WaitGroup
	for i := range processes + 1 {
		p := start(t, fresh, "counter", roundsEnv+"="+strconv.Itoa(rounds))
		victim := i == processes
		wg.Go(func() {
			for p.out.Scan() {
				counted[i]++
				if victim {
					p.signal(syscall.SIGKILL)
				}
			}
			if err := p.cmd.Wait(); err != nil && !victim {
				t.Errorf("a process: %v", err)
			}
		})
	}
	wg.Wait()
	sum := 0
	for i, n := range counted {
		sum += n
		if i < processes && n != 8*rounds {
			t.Errorf("process %d has counted %d times of %d", i, n, 8*rounds)
		}
	}
	var n int
	if err := fresh.QueryRow(t.Context(), "SELECT n FROM counter").Scan(&n); err != nil {
		t.Fatal(err)
	}
	// The one that was killed may have counted without saying so, once.
	if n < sum || n > sum+1 {
		t.Errorf("%d are in the row, and %d were told", n, sum)
	}
}
