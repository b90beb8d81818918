package lock

import (
	"testing"
	"time"
)

// TestUntil: it is what the grant said, then what a renewal said.
func TestUntil(t *testing.T) {
	first := time.Now().Add(time.Hour)
	l, ctrl := New(Grant{Name: "a", Until: first}, nil)
	if until, ok := l.Until(); !ok || !until.Equal(first) {
		t.Errorf("%v, %v after the grant", until, ok)
	}
	later := first.Add(time.Hour)
	if !ctrl.Renewed(later) {
		t.Fatal("it was not renewed")
	}
	if until, ok := l.Until(); !ok || !until.Equal(later) {
		t.Errorf("%v, %v after a renewal", until, ok)
	}
	if until, ok := mustLock(New(Grant{Name: "b"}, nil)).Until(); ok {
		t.Errorf("%v, of a lock that nothing bounds", until)
	}
}

func mustLock(l *Lock, _ *Controller) *Lock { return l }
