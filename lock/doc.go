// Package lock has the words that all strategies share: a [Locker] grants a
// [*Lock] for a name, [Do] runs a function under one, options say how to wait and
// for how long to hold, and errors say what happened to which lock, who holds it,
// and what to do next.
//
// # What a lock promises, and what it does not
//
// A lock is a lease: it is granted for a TTL, renewed while its holder lives, and
// free for others when its expiry has passed by the database's clock. A holder
// trusts its lease until
//
//	sent + TTL - max(TTL/10, 50 ms)
//
// where sent is its own monotonic clock just before the statement that granted or
// renewed the lease was sent. Nobody's wall clock is compared with anybody else's.
// From that moment on, or as soon as the loss is known, [Lock.Context] and
// [Lock.Done] end, and [Lock.Err] is [ErrLost].
//
// So two holders never act at once as long as a holder stops when its context
// ends. Code that does not look at its context, a process that is paused between
// looking and writing, a virtual machine that is suspended with its clock: these
// can act on a lost lock. What protects against them is [Lock.Guard], which pins
// the lock inside the caller's own transaction, or the fencing token
// ([Lock.Token]), which whatever is protected can refuse when it has seen a larger
// one (Martin Kleppmann, How to do distributed locking, 2016).
//
// The lease itself is that of Cary Gray and David Cheriton (Leases: an efficient
// fault-tolerant mechanism for distributed file cache consistency, 1989).
package lock
