package locktable_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sqlnative/locks/integration/chaos/proxy"
	"github.com/sqlnative/locks/integration/testdb/control"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// faults are the ways in which a server cannot be reached.
var faults = map[string]func(*proxy.Proxy){
	"gone":     (*proxy.Proxy).Refuse,
	"paused":   (*proxy.Proxy).Pause,
	"vanished": (*proxy.Proxy).Swallow,
}

// A holder whose database cannot be reached is told no later than its lease can be trusted, and the lock can be had by
// another when the lease has run out. What the holder's side had sent arrives, if at all, when the lock is another's,
// and does nothing.
func TestLossIsToldInTime(t *testing.T) {
	for _, fl := range flavours() {
		for name, fault := range faults {
			t.Run(fl.name+"/"+name, func(t *testing.T) {
				t.Parallel() // they wait, most of the time
				fresh := migrated(t, fl.kind)
				p, dsn := behind(t, fresh)
				lose(t, fl, fresh, dsn, func() { fault(p) }, func() {
					if err := p.Heal(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// The same with the server itself frozen: for one database, since testdb has to have started it.
func TestLossWhileTheServerIsPaused(t *testing.T) {
	server, ok := control.Of("postgres")
	if !ok {
		t.Skip("this needs a server that testdb started: run it under integration/testdb")
	}
	fresh := migrated(t, sqldb.Postgres)
	ctx := t.Context()
	lose(t, flavours()[0], fresh, fresh.DSN, func() {
		if err := server.Pause(ctx); err != nil {
			t.Error(err)
		}
		// Nobody can take the lock from a server that is frozen: it is let go when the loss must have been told.
		time.AfterFunc(2*time.Second, func() {
			if err := server.Resume(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		})
	}, func() {})
}

// lose holds a lock through dsn, breaks the way to the server, and looks on.
func lose(t *testing.T, fl flavour, fresh *dbtest.DB, dsn string, cut, heal func()) {
	ctx := t.Context()
	l := lease{ttl: time.Second}
	a := locker(t, fl.open(t, dsn, 8), lock.TTL(l.ttl))
	b := locker(t, fresh.DB)
	mine := acquire(t, a, "job", lock.WithTrace(l.trace()))
	work := mine.Context(ctx)
	time.Sleep(l.ttl / 2) // it is renewed once
	isHeld(t, b, mine)
	cut()

	type grant struct {
		*lock.Lock
		err  error
		lost error // what the first holder knew when the second had it
	}
	next := make(chan grant, 1)
	go func() {
		got, err := b.Acquire(ctx, "job", lock.Wait(20*time.Second))
		next <- grant{got, err, mine.Err()}
	}()

	select {
	case <-mine.Done():
	case <-time.After(10 * time.Second):
		t.Error("the loss was not told in 10 s")
	}
	until, _ := l.get()
	if late := time.Since(until); late > slack {
		t.Errorf("the loss was told %v after the lease could be trusted", late)
	}
	// The trace is told of a renewal a little after its answer, and so reckons a little too much.
	trusted, ok := mine.Until()
	if early := time.Until(trusted); !ok || early > 0 || until.Sub(trusted) > slack {
		t.Errorf("the loss was told %v before the lease had run out, though nobody can know; it was %v shorter than the trace says", early, until.Sub(trusted))
	}
	var lost *lock.LostError
	if !errors.As(mine.Err(), &lost) || lost.Token != mine.Token() || lost.Name != "job" {
		t.Errorf("Err is %v", mine.Err())
	}
	if !within(slack, func() bool { return work.Err() != nil }) || !errors.As(context.Cause(work), &lost) {
		t.Errorf("the ctx ends with %v", context.Cause(work))
	}

	begun := time.Now()
	if err := mine.Release(ctx); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Release answers %v", err)
	}
	if took := time.Since(begun); took > lock.ReleaseBound+time.Second {
		t.Errorf("Release took %v", took)
	}

	got := <-next
	if got.err != nil {
		t.Fatal(got.err)
	}
	if !errors.Is(got.lost, lock.ErrLost) {
		t.Errorf("when another had the lock, its first holder's Err was %v", got.lost)
	}
	if got.Token() <= mine.Token() {
		t.Errorf("token %d after %d", got.Token(), mine.Token())
	}
	heal()
	time.Sleep(100 * time.Millisecond) // what was held up arrives
	if err := guarded(ctx, fresh.DB, got.Lock); err != nil {
		t.Errorf("the successor's guard: %v", err)
	}
	release(t, got.Lock)

	// The first Locker works again.
	again := acquire(t, a, "job")
	if again.Token() <= got.Token() {
		t.Errorf("token %d after %d", again.Token(), got.Token())
	}
	release(t, again)
}

// hiccups are interruptions that are over before the lease is.
var hiccups = map[string]func(t *testing.T, p *proxy.Proxy){
	"connections cut": func(t *testing.T, p *proxy.Proxy) { p.CutAll() },
	"server gone for a while": func(t *testing.T, p *proxy.Proxy) {
		p.Refuse()
		time.Sleep(400 * time.Millisecond)
		if err := p.Heal(); err != nil {
			t.Error(err)
		}
	},
	"silence for a while": func(t *testing.T, p *proxy.Proxy) {
		p.Pause()
		time.Sleep(400 * time.Millisecond)
		if err := p.Heal(); err != nil {
			t.Error(err)
		}
	},
	// As behind a NAT that has forgotten: the old connections are dead and do not know it, new ones work.
	"connections dead without a packet": func(t *testing.T, p *proxy.Proxy) { p.SwallowOld() },
}

// A renewal that fails is tried again, and the lock is kept.
func TestFailedRenewalIsSurvived(t *testing.T) {
	for _, fl := range flavours() {
		for name, hiccup := range hiccups {
			t.Run(fl.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				fresh := migrated(t, fl.kind)
				p, dsn := behind(t, fresh)
				l := lease{ttl: 1500 * time.Millisecond}
				if name == "connections dead without a packet" {
					// Each attempt has half of what is left, and the pool may offer another dead connection first.
					l.ttl = 4 * time.Second
				}
				a := locker(t, fl.open(t, dsn, 8), lock.TTL(l.ttl))
				b := locker(t, fresh.DB)
				mine := acquire(t, a, "job", lock.WithTrace(l.trace()))
				time.Sleep(l.ttl / 3 * 9 / 10) // just before the first renewal
				hiccup(t, p)
				select {
				case <-mine.Done():
					until, failed := l.get()
					t.Errorf("%v after it could be trusted: %v; failed renewals:\n%v", time.Since(until), mine.Err(), errors.Join(failed...))
					return
				case <-time.After(max(3*l.ttl/2, 4500*time.Millisecond)): // three of the short TTLs
				}
				isHeld(t, b, mine)
				release(t, mine)
				release(t, acquire(t, b, "job", lock.Try()))
				p.CutAll() // lib/pq waits on a dead connection for as long as it is open
			})
		}
	}
}
