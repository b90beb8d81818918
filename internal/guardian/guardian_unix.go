//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package guardian

import (
	"errors"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// A goroutine of its own: an init has the main thread to itself, and every step of
// it would be a change of threads.
func init() {
	if len(os.Args) > 1 && os.Args[1] == Arg {
		done := make(chan int)
		go func() { done <- guard(os.Args[2:]) }()
		os.Exit(<-done)
	}
}

// orphanGrace is how long the command may take to end after sqllock has died, if its
// lease lasts that long.
const orphanGrace = 10 * time.Second

// guardian is the process that starts the command, and ends it when the lock can no
// longer be trusted, whatever has become of sqllock:
//
//   - sqllock is killed: the control pipe ends, which the kernel sees to.
//   - sqllock is stopped, or waits for a database that does not answer: no renewal
//     comes, and the deadlines that it was told pass.
//
// It is the guardian that starts the command, and not sqllock, since there would be a
// moment in between: sqllock starts the command, is killed before it can tell the
// guardian, and the command runs without lock and guard. Here it is told first.
// And since it reaps the command, it never signals a group whose number has passed to
// somebody else.
type guardian struct {
	path    string
	args    []string
	pid     int // of the command, and of its group; 0: not started
	report  *os.File
	tty     *terminal
	term    *time.Timer
	kill    *time.Timer
	killAt  time.Time
	warned  bool   // SIGTERM was sent for want of a lease
	status  string // how the command has ended; "": it runs
	sweep   *time.Ticker
	sweepTo time.Time
}

// event is what wait4 has to say.
type event struct {
	status syscall.WaitStatus
	err    error
}

// guard is the guardian's main: args are the path of the command, and its arguments
// from its own name on.
func guard(args []string) int {
	if len(args) < 2 {
		_, _ = os.Stderr.WriteString("sqllock: " + Arg + " is started by \"sqllock run\" only\n")
		return exitUsage
	}
	syscall.CloseOnExec(ControlFD)
	syscall.CloseOnExec(ReportFD)
	control, report := os.NewFile(ControlFD, "control"), os.NewFile(ReportFD, "report")
	if control == nil || report == nil {
		return exitUsage
	}
	// Signals are sqllock's to forward. They are caught, and not ignored, as the
	// command would inherit that.
	caught := make(chan os.Signal, 64)
	signal.Notify(caught, Forwarded()...)
	signal.Notify(caught, syscall.SIGPIPE)

	g := &guardian{path: args[0], args: args[1:], report: report, term: stopped(), kill: stopped(), sweep: time.NewTicker(time.Hour)}
	adopt()
	lines := make(chan string)
	go func() {
		defer close(lines)
		readLines(control, lines)
	}()
	events := make(chan event)
	for {
		select {
		case line, ok := <-lines:
			if !ok && g.pid == 0 {
				return 0 // the lock was not had
			}
			if !ok {
				g.orphaned()
				lines = nil
				continue
			}
			if !g.told(line, events) {
				return 0
			}
		case <-g.term.C:
			g.warn("term")
		case <-g.kill.C:
			g.signal(syscall.SIGKILL)
			g.say("kill")
		case e := <-events:
			g.changed(e)
		case <-g.sweep.C:
		case <-caught:
		}
		if g.status != "" && g.swept() {
			g.tty.takeBack(g.pid)
			g.say(g.status)
			return 0
		}
	}
}

// told does what sqllock says; false: there is nothing left to do.
func (g *guardian) told(line string, events chan<- event) bool {
	word, rest := cut(line, ' ')
	l := reader{rest: rest}
	switch word {
	case "start":
		term, kill, group := l.number(), l.number(), l.number()
		name, owner, token := l.text(), l.text(), l.text()
		if l.err != nil {
			g.say("failed 0 " + l.err.Error())
			return false
		}
		g.arm(term, kill)
		// The interleaving that this closes: the guardian, or the machine, stands still between
		// the line and here, and the lock is another's when it goes on.
		if !g.killAt.IsZero() && !time.Now().Before(g.killAt) {
			g.say("kill")
			g.say("failed 0 not started: the lock can no longer be trusted")
			return false
		}
		return g.start(int(group), name, owner, token, events)
	case "arm":
		if term, kill := l.number(), l.number(); l.err == nil {
			g.arm(term, kill)
		}
	case "signal":
		if n := l.number(); l.err == nil {
			g.signal(syscall.Signal(n))
		}
	}
	return true
}

// arm sets the deadlines; 0 and 0: there are none.
func (g *guardian) arm(term, kill int64) {
	if term == 0 && kill == 0 {
		g.term.Stop()
		g.kill.Stop()
		g.killAt = time.Time{}
		return
	}
	g.killAt = decodeDeadline(kill)
	g.term.Reset(time.Until(decodeDeadline(term)))
	g.kill.Reset(time.Until(g.killAt))
}

// start starts the command; false: it could not be.
func (g *guardian) start(group int, name, owner, token string, events chan<- event) bool {
	var env []string
	for _, e := range os.Environ() {
		if k, _ := cut(e, '='); k != "SQLLOCK_NAME" && k != "SQLLOCK_OWNER" && k != "SQLLOCK_TOKEN" {
			env = append(env, e)
		}
	}
	env = append(env, "SQLLOCK_NAME="+name, "SQLLOCK_OWNER="+owner, "SQLLOCK_TOKEN="+token)
	// Not by package os: it tries first, with a process for that alone, whether the kernel
	// has pidfds, and wait4 it is anyway, which also tells of stops.
	pid, err := syscall.ForkExec(g.path, g.args, &syscall.ProcAttr{
		Env: env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		var errno syscall.Errno
		_ = errors.As(err, &errno)
		g.say("failed " + strconv.Itoa(int(errno)) + " " + err.Error())
		return false
	}
	g.pid = pid
	g.say("started " + strconv.Itoa(pid))
	go reap(pid, events)
	g.tty = openTerminal(group)
	if g.tty != nil && g.tty.interactive() {
		g.tty.give(g.pid)
	}
	return true
}

// reap waits for the command, and for what the command has orphaned, whose parent the
// guardian is then (adopt): a zombie that nobody reaps keeps its group alive, and in a
// container, where sqllock is process 1, nobody else would.
func reap(command int, events chan<- event) {
	for ended := false; ; {
		var e event
		pid, err := syscall.Wait4(-1, &e.status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR), err == nil && pid != command:
			continue
		case ended:
			return
		}
		e.err = err
		events <- e
		if err != nil {
			return
		}
		ended = !e.status.Stopped()
	}
}

// changed is told that the command has ended, or was stopped.
func (g *guardian) changed(e event) {
	switch {
	case e.err != nil:
		g.ended("exit", exitInternal)
	case e.status.Exited():
		g.ended("exit", e.status.ExitStatus())
	case e.status.Signaled():
		g.ended("killed", int(e.status.Signal()))
	case e.status.Stopped():
		switch sig := e.status.StopSignal(); sig {
		case syscall.SIGTTIN, syscall.SIGTTOU:
			// It may have the terminal already: it was given while the command asked for it.
			if g.tty.give(g.pid) {
				g.signal(syscall.SIGCONT)
			}
		case syscall.SIGTSTP:
			if g.tty.ours(g.pid) {
				g.signal(syscall.SIGCONT)
				g.say("nostop")
			}
		}
	}
}

// ended begins to end what the command has left in its group.
func (g *guardian) ended(how string, n int) {
	g.status = how + " " + strconv.Itoa(n)
	if err := g.signal(syscall.SIGTERM); errors.Is(err, syscall.ESRCH) {
		g.sweepTo = time.Now()
		return
	}
	g.signal(syscall.SIGCONT)
	g.sweepTo = time.Now().Add(LeftoverGrace)
	g.sweep.Reset(10 * time.Millisecond)
}

// swept reports whether nothing is left in the group, or nothing can be done about
// it.
func (g *guardian) swept() bool {
	if err := syscall.Kill(-g.pid, 0); errors.Is(err, syscall.ESRCH) {
		return true
	}
	late := time.Since(g.sweepTo)
	if late > 0 {
		g.signal(syscall.SIGKILL)
	}
	return late > time.Second // of another user, or in the kernel
}

// orphaned: sqllock has died, and nobody renews the lock.
func (g *guardian) orphaned() {
	g.warn("")
	end := time.Now().Add(orphanGrace)
	if !g.killAt.IsZero() && g.killAt.Before(end) {
		end = g.killAt
	}
	g.kill.Reset(time.Until(end))
}

// warn sends SIGTERM, once.
func (g *guardian) warn(report string) {
	if g.warned || g.pid == 0 {
		return
	}
	g.warned = true
	g.term.Stop()
	g.signal(syscall.SIGTERM)
	g.signal(syscall.SIGCONT) // one that is stopped would not see it
	if report != "" {
		g.say(report)
	}
}

// signal sends a signal to the group. Once the command was reaped, there is only a
// group as long as somebody is in it.
func (g *guardian) signal(sig syscall.Signal) error {
	if g.pid == 0 {
		return nil
	}
	return syscall.Kill(-g.pid, sig)
}

// say reports to sqllock, which may have gone.
func (g *guardian) say(line string) { _, _ = g.report.WriteString(line + "\n") }

func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}
