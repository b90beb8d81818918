package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	os.Exit(run(os.Args[1:], os.Environ()))
}

// run is main with an exit code, so that what is deferred here runs before the process ends.
func run(args, env []string) (code int) {
	t := &teller{out: os.Stderr}
	s, err := parseSettings(args, env, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		t.say("%v", err)
		return 2
	}

	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	l := newLadder(s, t)
	defer l.report()
	defer func() {
		if p := recover(); p != nil {
			t.say("panic: %v; this is a fault of testdb", p)
			code = 1
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := l.remove(ctx); err != nil {
			t.say("not everything could be taken down: %v", err)
			code = max(code, 1)
		}
	}()

	if stopped, err := bringUp(l, signals); err != nil {
		t.say("%v", err)
		if stopped != 0 {
			return 128 + int(stopped)
		}
		return 1
	}
	if err := l.demand(); err != nil {
		t.say("%v", err)
		return 1
	}
	board, err := newSwitchboard(l.servers)
	if err != nil {
		t.say("%v", err)
		return 1
	}
	defer board.close()
	if code, err = runCommand(s.command, l.environment(board.urls), signals); err != nil {
		t.say("%v", err)
		code = max(code, 1)
	}
	return code
}

// bringUp climbs the ladder, and stops climbing on a signal, which it returns.
func bringUp(l *ladder, signals <-chan os.Signal) (syscall.Signal, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	climbed := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				climbed <- fmt.Errorf("panic: %v; this is a fault of testdb", p)
			}
		}()
		climbed <- l.climb(ctx)
	}()
	var stopped syscall.Signal
	for {
		select {
		case err := <-climbed:
			if stopped != 0 {
				return stopped, fmt.Errorf("ended by a signal (%v) before the databases were up", stopped)
			}
			return 0, err
		case sig := <-signals:
			stopped, _ = sig.(syscall.Signal)
			cancel()
		}
	}
}
