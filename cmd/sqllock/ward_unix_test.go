//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/lock"
)

// TestWardOfOneWhoIsStopped: sqllock does not wait for a guardian that reads nothing.
func TestWardOfOneWhoIsStopped(t *testing.T) {
	r, control, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), control.Close() }()
	for err == nil {
		if err = control.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err == nil {
			_, err = control.Write(make([]byte, 4096))
		}
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	w := &ward{control: control}
	w.tell("arm 1 2") // returns
	w.signal(15)
}

// TestLostBeforeTheStart: a lock that was lost between its grant and the command's start
// is one that was lost, and no database that cannot be reached.
func TestLostBeforeTheStart(t *testing.T) {
	r := &runner{o: &runOptions{name: "x"}}
	if code, err := r.verdict(t.Context(), joblock.Result{}, &lock.LostError{Name: "x"}); code != exitLost || !errors.Is(err, lock.ErrLost) || !r.result.Lost {
		t.Errorf("%d, %v, %+v", code, err, r.result)
	}
	r = &runner{o: &runOptions{name: "x"}}
	if code, _ := r.verdict(t.Context(), joblock.Result{}, errors.New("connection refused")); code != exitUnavailable || r.result.Lost {
		t.Errorf("%d, %+v", code, r.result)
	}
}
