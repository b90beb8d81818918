package locktest

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlnative/locks/lock"
)

func exclusionTests() []test {
	return []test{
		{name: "Exclusion/Counter", run: exclusionCounter},
		{name: "Exclusion/Expiring", run: exclusionExpiring, need: func(s *Subject) bool { return s.NoRenew }},
		{name: "Exclusion/Names", run: exclusionNames},
	}
}

// section is a critical section that notices when two are in it: by the number of
// those inside, and by a counter that is read, and written a little later.
type section struct {
	inside, overlaps, counter atomic.Int64
}

func (s *section) enter(stay time.Duration) {
	if s.inside.Add(1) > 1 {
		s.overlaps.Add(1)
	}
	n := s.counter.Load()
	runtime.Gosched()
	time.Sleep(stay)
	s.counter.Store(n + 1)
	s.inside.Add(-1)
}

// 64 goroutines over 3 Lockers, one lock.
func exclusionCounter(c *check) {
	const goroutines, lockers = 64, 3
	var all []lock.Locker
	for range lockers {
		all = append(all, c.locker())
	}
	var s section
	var mu sync.Mutex
	var tokens []int64
	ctx, cancel := context.WithTimeout(context.Background(), 3*c.patience)
	defer cancel()
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			err := lock.Do(ctx, all[i%lockers], c.name, func(_ context.Context, l *lock.Lock) error {
				s.enter(200 * time.Microsecond)
				mu.Lock()
				defer mu.Unlock()
				tokens = append(tokens, l.Token())
				return nil
			})
			if err != nil {
				c.Errorf("goroutine %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if o := s.overlaps.Load(); o > 0 {
		c.Errorf("%d times somebody else was inside", o)
	}
	if n := s.counter.Load(); n != goroutines {
		c.Errorf("the counter is %d after %d increments", n, goroutines)
	}
	for i := 1; c.s.Token && i < len(tokens); i++ {
		if tokens[i] <= tokens[i-1] {
			c.Errorf("token %d came after %d", tokens[i], tokens[i-1])
		}
	}
}

// Holders that die, one after the other, with as many waiting: whoever gets the
// lock, the one before has been told by then.
func exclusionExpiring(c *check) {
	const rounds, lockers = 2, 2
	var mu sync.Mutex
	var last *lock.Lock
	var wg sync.WaitGroup
	ctx := c.ctx()
	for range lockers {
		l := c.locker(lock.TTL(c.s.TTL), lock.NoRenew())
		wg.Go(func() {
			for range rounds {
				got, err := l.Acquire(ctx, c.name)
				if err != nil {
					c.Errorf("Acquire: %v", err)
					return
				}
				mu.Lock()
				if last != nil && last.Err() == nil {
					c.Errorf("the lock was granted with token %d while its holder (token %d) trusts it", got.Token(), last.Token())
				}
				last = got
				mu.Unlock()
				<-got.Done() // and never released
			}
		})
	}
	wg.Wait()
}

// Names are compared byte by byte.
func exclusionNames(c *check) {
	a, b := c.locker(), c.locker()
	base := c.name[len(c.name)-8:]
	for _, name := range []string{"job " + base, "JOB " + base, "jób " + base, "job " + base + " ", "jo\u0301b " + base, "jo%" + base, "jo_" + base, "job\t" + base} {
		got, err := a.Acquire(c.ctx(), name, lock.Try())
		if err != nil {
			c.Fatalf("%q, while only other names are held: %v", name, err)
		}
		defer func() { _ = got.Release(context.Background()) }()
		if held := c.held(b, name); held.Name != name {
			c.Errorf("the name in the error is %q, not %q", held.Name, name)
		}
	}
}
