package locktest

import (
	"errors"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

func refusedTests() []test {
	return []test{
		{name: "Refused/Options", run: refusedOptions},
		{name: "Refused/Calls", run: refusedCalls},
	}
}

// What the Subject does not declare is refused with errors.ErrUnsupported, and what
// it declares is not.
func refusedOptions(c *check) {
	l := c.locker()
	for _, o := range []struct {
		name     string
		declared bool
		opt      lock.Option
	}{
		{"NoRenew", c.s.NoRenew, lock.NoRenew()},
		{"AtMost", c.s.AtMost, lock.AtMost(time.Hour)},
		{"HoldAtLeast", c.s.HoldAtLeast, lock.HoldAtLeast(time.Millisecond)},
		{"Shared", c.s.Shared, lock.Shared()},
	} {
		var err error
		ask := func() {
			var got *lock.Lock
			if got, err = l.Acquire(c.ctx(), c.name, o.opt); err == nil {
				c.release(got)
			}
		}
		if o.declared {
			if ask(); err != nil {
				c.Errorf("%s is declared, but refused: %v", o.name, err)
			}
			continue
		}
		if c.silently(o.name, ask); err == nil {
			c.Errorf("%s is not declared, but accepted: declare it, or refuse it", o.name)
		} else if !errors.Is(err, errors.ErrUnsupported) {
			c.Errorf("%s is not declared; the error has to be errors.ErrUnsupported: %v", o.name, err)
		}
	}
}

func refusedCalls(c *check) {
	got := c.acquire(c.locker(), c.name)
	defer c.release(got)
	if has := got.Token() > 0; has != c.s.Token {
		c.Errorf("Token is declared as %v, and the token is %d", c.s.Token, got.Token())
	}
	check := func(name string, declared bool, err error) {
		c.Helper()
		switch {
		case declared && err != nil:
			c.Errorf("%s is declared, but fails: %v", name, err)
		case !declared && !errors.Is(err, errors.ErrUnsupported):
			c.Errorf("%s is not declared; the error has to be errors.ErrUnsupported: %v", name, err)
		}
	}
	check("Extend", c.s.Extend, got.Extend(c.ctx(), time.Minute))
	if !c.s.Guard { // a transaction that runs no statement will do: it is refused before
		tx := noDatabase().Tx(&memoryTx{m: new(Memory)})
		check("Guard", false, got.Guard(c.ctx(), tx))
		check("ReleaseIn", false, got.ReleaseIn(c.ctx(), tx))
	} else {
		tx, _, rollback := c.s.Begin(c.TB)
		defer func() { _ = rollback() }()
		check("Guard", true, got.Guard(c.ctx(), tx))
	}
	c.alive(got)
	for _, f := range []func() error{
		func() error { return got.Guard(c.ctx(), nil) },
		func() error { return got.ReleaseIn(c.ctx(), nil) },
		func() error { return got.Guard(c.ctx(), noDatabase().Tx("no transaction")) },
		func() error { return got.ReleaseIn(c.ctx(), (*sqldb.Tx)(nil)) },
	} {
		c.is("what is no transaction", f(), lock.ErrInvalid)
	}
	c.alive(got)
}
