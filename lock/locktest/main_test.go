package locktest

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlnative/locks/internal/dbtest"
)

func TestMain(m *testing.M) {
	dbtest.Parallel(8)
	goleak.VerifyTestMain(dbtest.Run(func() int {
		return Main(m, map[string]Child{"echo": func(args []string) int {
			fmt.Println("args", strings.Join(args, ","))
			for s := bufio.NewScanner(os.Stdin); s.Scan(); {
				if s.Text() == "end" {
					fmt.Fprintln(os.Stderr, "it ends")
					return 3
				}
				fmt.Println("echo", s.Text())
			}
			return 0
		}})
	}))
}

func TestProcess(t *testing.T) {
	p := Start(t, "echo", "a b", `"`)
	if got := p.Expect("args"); got != `a b,"` {
		t.Errorf("its arguments are %q", got)
	}
	p.Send("one")
	p.Expect("echo one")
	p.Stop()
	p.Send("two")
	select {
	case line := <-p.lines:
		t.Errorf("a process that was stopped says %q", line)
	default:
	}
	p.Continue()
	p.Expect("echo two")
	p.Send("end")
	<-p.done
	if p.cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("it ended with %v", p.err)
	}
	q := Start(t, "echo")
	q.Expect("args")
	q.Kill()
	q.Kill()
	if q.cmd.ProcessState.Success() {
		t.Error("it was killed, and has ended well")
	}
	if q.PID() == p.PID() || q.PID() == os.Getpid() {
		t.Error("it is no process of its own")
	}
	if parentPipe > 0 {
		orphan := Start(t, "echo")
		orphan.Expect("args")
		_ = orphan.alive.Close() // as when this process dies
		<-orphan.done
		if orphan.cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("a child whose parent has gone ended with %v", orphan.err)
		}
	}
	unknown := Start(t, "nobody")
	<-unknown.done
	if unknown.cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("a child that is not there ended with %v", unknown.err)
	}
}
