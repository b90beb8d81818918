package locktest

import (
	"context"
	"time"

	"github.com/sqlnative/locks/lock"
)

// faultTests are about a database that goes away: for each way one group.
func faultTests() []test {
	return []test{
		{name: "Faults/Loss", run: eachFault(faultLoss), need: hasFault},
		{name: "Faults/Close", run: eachFault(faultClose), need: hasFault},
		{name: "Faults/OneRenewal", run: eachFault(faultOneRenewal), need: func(s *Subject) bool {
			for _, f := range s.Faults {
				if !f.Silent {
					return true
				}
			}
			return false
		}},
	}
}

func hasFault(s *Subject) bool { return len(s.Faults) > 0 }

// eachFault runs f with every fault, and another lock each.
func eachFault(f func(c *check, fault Fault)) func(*check) {
	return func(c *check) {
		for _, fault := range c.s.Faults {
			each := *c
			each.name += " " + fault.Name
			c.Log("the fault: ", fault.Name)
			f(&each, fault)
		}
	}
}

// The loss is told no later than when the lease can no longer be trusted. What the
// holder does when its database is back does not touch the successor.
func faultLoss(c *check, f Fault) {
	ttl := 2 * c.s.TTL
	a, b := c.locker(), c.locker()
	var e events
	got := c.acquire(a, c.name, lock.TTL(ttl), e.option())
	ctx := got.Context(context.Background())
	c.wait("it is renewed", func() bool { return len(e.of("Renewed")) > 0 })
	heal := f.Break(c.TB, a)
	healed := false
	defer func() {
		if !healed {
			heal()
		}
	}()
	time.Sleep(time.Until(lock.TrustedUntil(time.Now(), ttl)))
	c.is("Err when the lease can no longer be trusted", got.Err(), lock.ErrLost)
	c.lost(got)
	<-ctx.Done()
	c.is("the cause", context.Cause(ctx), lock.ErrLost)

	next := c.granted(c.acquiring(c.ctx(), b, c.name))
	heal()
	healed = true
	for _, late := range []string{"renewal", "release"} {
		if late == "renewal" {
			time.Sleep(ttl / 2) // it would come within a third
		} else {
			c.is("a late Release", got.Release(c.ctx()), lock.ErrLost)
		}
		c.alive(next)
		if held := c.held(b, c.name); c.s.Holder && held.Token != next.Token() {
			c.Errorf("after a late %s the row has token %d, not the successor's %d", late, held.Token, next.Token())
		}
	}
	c.release(next)
	if n := len(e.of("Lost")); n != 1 {
		c.Errorf("the Trace was told of %d losses", n)
	}
	c.free(a, c.name) // it works again
}

// Close ends, also without a database, and what was held is left to its TTL.
func faultClose(c *check, f Fault) {
	a, b := c.s.New(c.TB), c.locker()
	got := c.acquire(a, c.name, lock.TTL(2*c.s.TTL))
	heal := f.Break(c.TB, a)
	defer heal()
	begun := time.Now()
	err := a.Close()
	if took := time.Since(begun); took > lock.ReleaseBound+c.patience/2 {
		c.Errorf("Close took %v", took)
	}
	c.Logf("Close: %v", err)
	select {
	case <-got.Done():
	default:
		c.Error("Close left its holder alive")
	}
	next := c.granted(c.acquiring(c.ctx(), b, c.name))
	c.release(next)
}

// A renewal that fails once is made good.
func faultOneRenewal(c *check, f Fault) {
	if f.Silent { // that shows only when the lease has run out
		return
	}
	a := c.locker()
	var e events
	got := c.acquire(a, c.name, lock.TTL(6*c.s.TTL), e.option())
	heal := f.Break(c.TB, a)
	c.wait("a renewal fails", func() bool { return len(e.of("RenewFailed")) > 0 })
	if ev := e.of("RenewFailed")[0]; ev.Err == nil || ev.Name != c.name || ev.Token != got.Token() {
		c.Errorf("the event is %+v", ev)
	}
	heal()
	c.wait("it is renewed", func() bool { return len(e.of("Renewed")) > 0 })
	c.alive(got)
	c.release(got)
}
