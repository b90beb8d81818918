package advisory_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sqlnative/locks/integration/chaos/proxy"
	"github.com/sqlnative/locks/integration/testdb/control"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
)

// slack is what a busy machine may take for what takes no time.
const slack = 3 * time.Second

// lease knows until when a lock can be trusted at most, by what its Trace is told.
type lease struct {
	ttl   time.Duration
	mu    sync.Mutex
	until time.Time
}

func (s *lease) trace() *lock.Trace {
	note := func(e lock.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.until = lock.TrustedUntil(time.Now().Add(-e.Took), s.ttl)
	}
	return &lock.Trace{Acquired: note, Renewed: note}
}

func (s *lease) get() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.until
}

// faults are the ways in which a server cannot be reached. Silent: neither side is told.
var faults = map[string]struct {
	cut    func(*proxy.Proxy)
	silent bool
}{
	"gone":     {(*proxy.Proxy).Refuse, false},
	"paused":   {(*proxy.Proxy).Pause, true},
	"vanished": {(*proxy.Proxy).Swallow, true},
}

// A holder that cannot reach its server is told no later than its lock can be trusted, and another has the lock within
// the TTL, since the server ends the session of a client that says nothing. (TCP alone would keep it for hours.)
func TestHolderIsCutOff(t *testing.T) {
	for _, fl := range flavours() {
		for name, fault := range faults {
			t.Run(fl.name+"/"+name, func(t *testing.T) {
				t.Parallel() // they wait, most of the time
				fresh := dbtest.New(t, fl.kind)
				p, dsn, err := proxy.Before(fl.kind, fresh.DSN)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(p.Close)
				l := lease{ttl: 2 * time.Second}
				a, b := locker(t, fl.open(t, dsn), lock.TTL(l.ttl)), locker(t, fresh.DB)
				mine := acquire(t, a, "job", lock.WithTrace(l.trace()))
				beside := acquire(t, a, "beside")
				time.Sleep(l.ttl) // it is pinged
				work := mine.Context(t.Context())
				if err := mine.Err(); err != nil {
					t.Fatal(err)
				}
				fault.cut(p)
				begun := time.Now()
				next := make(chan time.Time, 1)
				var got *lock.Lock
				go func() {
					got, err = b.Acquire(t.Context(), "job", lock.Wait(40*time.Second))
					if err != nil {
						t.Error(err)
					} else if fault.silent && mine.Err() == nil {
						t.Error("another had the lock while its holder trusted it")
					}
					next <- time.Now()
				}()
				<-work.Done()
				if until := l.get(); time.Since(until) > slack {
					t.Errorf("the loss was told %v after the lock could be trusted", time.Since(until))
				}
				var lost *lock.LostError
				if !errors.As(context.Cause(work), &lost) || !errors.As(mine.Err(), &lost) || lost.Name != "job" {
					t.Errorf("the ctx ends with %v, Err is %v", context.Cause(work), mine.Err())
				}
				if took := (<-next).Sub(begun); took > l.ttl+slack {
					t.Errorf("another had it after %v; the TTL is %v", took, l.ttl)
				}
				for _, h := range []*lock.Lock{mine, beside} {
					if err := h.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
						t.Errorf("Release: %v", err)
					}
				}
				if err := p.Heal(); err != nil {
					t.Error(err)
				}
				time.Sleep(100 * time.Millisecond) // what was held up arrives
				if got != nil {
					if err := got.Err(); err != nil {
						t.Errorf("the successor: %v", err)
					}
					release(t, got)
				}
				release(t, acquire(t, a, "job")) // the first Locker works again
			})
		}
	}
}

// A wait that is cut off: its ctx returns at once, and what the server grants to the session that waits there is free
// again within a slice and the TTL.
func TestWaiterIsCutOff(t *testing.T) {
	for _, fl := range flavours() {
		t.Run(fl.name, func(t *testing.T) {
			t.Parallel()
			fresh := dbtest.New(t, fl.kind)
			p, dsn, err := proxy.Before(fl.kind, fresh.DSN)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			a, b := locker(t, fl.open(t, dsn), lock.TTL(2*time.Second)), locker(t, fresh.DB)
			got := acquire(t, b, "job")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var stats lock.Stats
			done := make(chan error, 1)
			go func() {
				_, err := a.Acquire(ctx, "job", lock.WithTrace(stats.Trace()))
				done <- err
			}()
			if !within(20*time.Second, func() bool { return stats.Waiting.Load() == 1 }) {
				t.Fatal("it does not wait")
			}
			time.Sleep(200 * time.Millisecond) // in the server
			p.Swallow()
			cancel()
			begun := time.Now()
			if err := <-done; !errors.Is(err, context.Canceled) || time.Since(begun) > slack {
				t.Errorf("the wait ends with %v after %v", err, time.Since(begun))
			}
			release(t, got)
			release(t, acquire(t, b, "job"))
			if err := p.Heal(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A server that is restarted has forgotten the locks: the holder is told with its next ping, at the latest when it could
// not trust the lock any more, and its Locker goes on with the new one.
func TestServerIsRestarted(t *testing.T) {
	for _, fl := range flavours() {
		if fl.name == "pgx-stdlib" || fl.name == "lib-pq" {
			continue // it is the same server
		}
		t.Run(fl.name, func(t *testing.T) {
			server, ok := control.Of(fl.kind.String())
			if !ok {
				t.Skip("this needs a server that testdb started: run it under integration/testdb")
			}
			fresh := dbtest.New(t, fl.kind)
			l := lease{ttl: 3 * time.Second}
			a, b := locker(t, fl.open(t, fresh.DSN), lock.TTL(l.ttl)), locker(t, fresh.DB)
			mine := acquire(t, a, "job", lock.WithTrace(l.trace()))
			time.Sleep(l.ttl / 2)
			told := make(chan time.Time, 1) // the restart itself takes seconds
			context.AfterFunc(mine.Context(context.Background()), func() { told <- time.Now() })
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			select {
			case at := <-told:
				if late := at.Sub(l.get()); late > slack {
					t.Errorf("it was told %v after the lock could be trusted", late)
				}
			case <-time.After(40 * time.Second):
				t.Fatal("the loss was not told")
			}
			var next *lock.Lock
			if !within(40*time.Second, func() (ok bool) {
				var err error
				next, err = b.Acquire(t.Context(), "job", lock.Wait(10*time.Second))
				return err == nil
			}) {
				t.Fatal("another cannot have it")
			}
			release(t, next)
			release(t, acquire(t, a, "job"))
		})
	}
}
