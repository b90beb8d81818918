package gocronlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/sqlnative/locks/contrib/gocronlock"
	"github.com/sqlnative/locks/contrib/internal/site"
	"github.com/sqlnative/locks/lock"
)

// asked tells when a scheduler has its answer. gocron may set its timer for the next time
// before it asks: the interleaving that this closes is a scheduler that asks for one time
// when it has been elected after it, and then runs the job of a time that is over.
type asked struct {
	gocron.Elector
	answered chan struct{}
}

func (a asked) IsLeader(ctx context.Context) error {
	defer func() { a.answered <- struct{}{} }()
	return a.Elector.IsLeader(ctx)
}

// Three schedulers and an election: who leads runs the job, each time, and who does not,
// never; when the leader resigns it is another's. The control is the next leader, which
// has not run it before.
func TestElector(t *testing.T) {
	site.Each(t, func(t *testing.T, s *site.Site) {
		type candidate struct {
			*machine
			asked
			stop context.CancelFunc
		}
		elected := make(chan *candidate)
		ended := make(chan error)
		var all []*candidate
		for range 3 {
			e, err := lock.NewElection(s.Locker(t), "scheduler", lock.TTL(5*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			c := &candidate{asked: asked{gocronlock.NewElector(e), make(chan struct{}, 10)}}
			c.machine = start(t, gocron.WithDistributedElector(c.asked), nil)
			if err := c.Elector.IsLeader(t.Context()); !errors.Is(err, gocronlock.ErrNotLeader) {
				t.Errorf("nobody leads: %v", err)
			}
			var ctx context.Context
			ctx, c.stop = context.WithCancel(t.Context())
			defer c.stop()
			all = append(all, c)
			go func() {
				ended <- e.Run(ctx, func(ctx context.Context, _ *lock.Lock) error {
					elected <- c
					<-ctx.Done()
					return nil
				})
			}()
		}
		led := map[*candidate]bool{}
		for range all {
			var leader *candidate
			select {
			case leader = <-elected:
			case <-time.After(site.Patience):
				t.Fatal("nobody leads")
			}
			if led[leader] {
				t.Error("it leads again")
			}
			led[leader] = true
			done, cancel := context.WithCancel(t.Context())
			cancel()
			if err := leader.Elector.IsLeader(done); !errors.Is(err, context.Canceled) {
				t.Errorf("with a ctx that is done: %v", err)
			}
			for range 2 {
				for _, c := range all {
					c.fire()
				}
				leader.running()
				leader.end <- struct{}{}
				if err := leader.answer(); err != nil {
					t.Error(err)
				}
				for _, c := range all { // it has asked, and waits for its next time: this one is over
					select {
					case <-c.answered:
					case <-time.After(site.Patience):
						t.Fatal("a scheduler does not ask who leads")
					}
					if err := c.clock.BlockUntilContext(t.Context(), 1); err != nil {
						t.Error(err)
					}
					select {
					case <-c.began:
						t.Error("who does not lead runs it")
					default:
					}
					if err := c.Elector.IsLeader(t.Context()); (err == nil) != (c == leader) {
						t.Errorf("IsLeader: %v", err)
					}
				}
			}
			leader.stop()
			<-ended
		}
	})
}
