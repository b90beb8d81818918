package advisory

import (
	"fmt"
	"time"

	"github.com/sqlnative/locks/lock"
)

// strategy is the name under which options of this package are known.
const strategy = "advisory"

// DefaultConnections is how many connections a [Locker] takes out of the pool at most,
// where [Connections] says nothing else.
const DefaultConnections = 8

// Connections bounds how many connections a [Locker] takes out of the pool, for what it
// holds and for what it waits for. Default 8; in any case one fewer than the pool has.
// A wait that finds none left polls, with others' help, every 20 to 200 ms. An option
// of New.
func Connections(n int) lock.Option {
	if n < 1 || n > 1000 {
		return bad("Connections is %d; it can be 1 to 1000", n)
	}
	return lock.Own(strategy, "advisory.Connections", n)
}

// Poll has Acquire ask every d/2 to d whether the lock is free, instead of waiting in
// the server. On PostgreSQL a statement that waits has a snapshot, and a CREATE INDEX
// CONCURRENTLY, or a VACUUM, of the holder waits for that, or deadlocks with it. Who
// polls has no place in the server's queue: others come first who wait there, and a
// writer may wait for as long as readers follow each other. An option of New and of
// Acquire.
func Poll(d time.Duration) lock.Option {
	if d < time.Millisecond || d > time.Hour {
		return bad("Poll is %v; it can be %v to %v", d, time.Millisecond, time.Hour)
	}
	return lock.Own(strategy, "advisory.Poll", d)
}

// Unchecked takes a server that is refused otherwise: a read-only one, a node of a
// Galera cluster or of group replication, one behind what looks like a proxy that pools
// transactions. It is for those who know that all programs that share the locks speak
// to the same server, and to a session of their own. An option of New.
func Unchecked() lock.Option { return lock.Own(strategy, "advisory.Unchecked", true) }

func bad(format string, args ...any) lock.Option {
	return func(*lock.Options) error { return fmt.Errorf(format, args...) }
}

// config is what the options of New come to.
type config struct {
	connections int
	unchecked   bool
}

func configOf(o lock.Options) config {
	c := config{connections: DefaultConnections}
	if n, ok := o.Own("advisory.Connections").(int); ok {
		c.connections = n
	}
	c.unchecked = o.Own("advisory.Unchecked") != nil
	return c
}

// pollOf is how often is asked; 0: the server waits.
func pollOf(o *lock.Options) time.Duration {
	d, _ := o.Own("advisory.Poll").(time.Duration)
	return d
}
