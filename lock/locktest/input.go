package locktest

import (
	"errors"
	"strings"
	"time"

	"github.com/sqlnative/locks/lock"
)

func inputTests() []test {
	return []test{
		{name: "Input/Names", run: inputNames},
		{name: "Input/Options", run: inputOptions},
	}
}

// silently says that f sends no statement.
func (c *check) silently(what string, f func()) {
	c.Helper()
	if c.s.Statements == nil {
		f()
		return
	}
	before := c.s.Statements()
	f()
	if n := c.s.Statements() - before; n != 0 {
		c.Errorf("%s: %d statements were sent", what, n)
	}
}

func inputNames(c *check) {
	l := c.locker()
	for what, name := range map[string]string{
		"empty": "", "256 bytes": strings.Repeat("x", 256), "NUL": "a\x00b", "not UTF-8": "a\xffb", "half a rune": "a\xc3",
		"128 runes of two bytes": strings.Repeat("ö", 128),
	} {
		c.silently(what, func() {
			for _, opts := range [][]lock.Option{nil, {lock.Try()}} {
				_, err := l.Acquire(c.ctx(), name, opts...)
				c.is(what, err, lock.ErrInvalid)
			}
		})
	}
	for what, name := range map[string]string{
		"255 bytes": strings.Repeat("x", 247), "two-byte runes": strings.Repeat("ö", 123) + "x", "four-byte runes": strings.Repeat("🔒", 60),
		"quotes": `'"` + "`" + `\;--$1?%_{name}`, "a space": " ", "controls": "\t\r\n\x7f",
	} {
		got, err := l.Acquire(c.ctx(), name+c.name[len(c.name)-8:])
		if err != nil {
			c.Errorf("a name with %s: %v", what, err)
			continue
		}
		c.held(l, got.Name())
		c.release(got)
	}
}

func inputOptions(c *check) {
	l := c.locker()
	const century = 200 * 365 * 24 * time.Hour
	bad := map[string][]lock.Option{
		"TTL below the floor": {lock.TTL(lock.MinTTL - 1)}, "TTL 0": {lock.TTL(0)}, "TTL negative": {lock.TTL(-time.Second)}, "TTL of two centuries": {lock.TTL(century)},
		"Wait negative":  {lock.Wait(-1)},
		"label too long": {lock.Label(strings.Repeat("x", lock.MaxLabel+1))}, "label with NUL": {lock.Label("a\x00")}, "label not UTF-8": {lock.Label("\xff")},
		"nil": {nil}, "nil behind another": {lock.Try(), nil},
		"AtMost 0": {lock.AtMost(0)}, "AtMost below the floor": {lock.AtMost(lock.MinTTL - 1)}, "AtMost of two centuries": {lock.AtMost(century)},
		"HoldAtLeast 0": {lock.HoldAtLeast(0)}, "HoldAtLeast negative": {lock.HoldAtLeast(-1)}, "HoldAtLeast of two centuries": {lock.HoldAtLeast(century)},
	}
	if c.s.AtMost && c.s.HoldAtLeast {
		bad["HoldAtLeast above AtMost"] = []lock.Option{lock.AtMost(time.Second), lock.HoldAtLeast(2 * time.Second)}
	}
	for what, opts := range bad {
		c.silently(what, func() {
			got, err := l.Acquire(c.ctx(), c.name, opts...)
			if err == nil {
				c.release(got)
				c.Errorf("%s was accepted", what)
			} else if !errors.Is(err, lock.ErrInvalid) {
				c.Errorf("%s: %v", what, err)
			}
		})
	}
	got := c.acquire(l, c.name, lock.TTL(max(lock.MinTTL, c.s.MinTTL)), lock.Wait(time.Hour), lock.Label(strings.Repeat("ö", lock.MaxLabel/2)), lock.WithTrace(nil), lock.Label(""))
	_ = got.Release(c.ctx())
}
