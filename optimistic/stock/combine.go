package stock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// Errors of a [Combined].
var (
	// ErrBusy: as many wait already as [MaxWaiting] says. Nothing was changed.
	ErrBusy = errors.New("stock: busy")
	// ErrClosed: [Combined.Close] was called before. Nothing was changed.
	ErrClosed = errors.New("stock: closed")
)

// The defaults of the options of [Stock.Combine].
const (
	DefaultMaxBatch   = 1024
	DefaultMaxWaiting = 1 << 16
)

// combineOptions are the options of [Stock.Combine].
type combineOptions struct {
	batch, waiting int
	strict         bool
	trace          *CombineTrace
}

// CombineOption is an option of [Stock.Combine].
type CombineOption func(*combineOptions) error

// MaxBatch says how many callers one statement serves at most. Default:
// [DefaultMaxBatch].
func MaxBatch(n int) CombineOption {
	return func(o *combineOptions) error {
		if n < 1 {
			return fmt.Errorf("MaxBatch(%d): it has to be at least 1", n)
		}
		o.batch = n
		return nil
	}
}

// MaxWaiting says how many callers may wait at once, for all rows together; one more
// is refused with [ErrBusy]. Those that a statement is under way for are not counted,
// but for those that try it alone after their batch has failed; nor is who comes to a
// row that nobody is at. Default: [DefaultMaxWaiting].
func MaxWaiting(n int) CombineOption {
	return func(o *combineOptions) error {
		if n < 1 {
			return fmt.Errorf("MaxWaiting(%d): it has to be at least 1", n)
		}
		o.waiting = n
		return nil
	}
}

// Strict has a take that does not fit block those behind it in the same batch, smaller
// ones too: they are refused with it, each with what was left, which may be more than it
// wanted. A batch are those that wait for the row at the moment when it is sent, up to
// [MaxBatch], and up to the first that wants something else: takes, takes for claims
// and puts ride apart. Who comes later, or is in the next batch, is not blocked by a
// refusal that is over. A claim that was made before blocks nobody, and is not blocked:
// it gets its receipt. It holds for a batch that falls apart too, but for those that
// try it alone. Without it, whoever fits is served.
func Strict() CombineOption {
	return func(o *combineOptions) error {
		o.strict = true
		return nil
	}
}

// TraceCombine has a trace told what is sent.
func TraceCombine(t *CombineTrace) CombineOption {
	return func(o *combineOptions) error {
		if t == nil {
			return errors.New("TraceCombine: the trace is nil")
		}
		o.trace = t
		return nil
	}
}

// CombineTrace is a set of functions that are told what a [Combined] does. They are
// called synchronously, by the goroutine of one of the callers, before the row's next
// batch is sent: they must be quick and safe for concurrent use, and must not call the
// Combined, which may wait for them.
type CombineTrace struct {
	// Batch: a batch has its answers; also one of a single caller.
	Batch func(Batch)
}

// Batch says what became of one batch.
type Batch struct {
	// ID is the row's id: int64, string or []byte, whatever type it was given as.
	ID any
	// Size is for how many callers it was, Served how many of them it has changed
	// something for.
	Size, Served int
	// Waited is how long the first of them, who came first, has waited until it was
	// sent: 0 if nobody was at the row. Took is how long its answers took then.
	Waited, Took time.Duration
	// Alone is how many needed a statement of their own, because the batch failed. Those
	// that still try it when this is told are not among the served.
	Alone int
	// Err is the first error of the batch, if it failed as one. That too little was left
	// is none.
	Err error
}

// Combined serves many goroutines that want something of one row at the same time with
// one statement and one commit. It is made by [Stock.Combine], and is safe for
// concurrent use.
//
// A row that everybody decrements is slow because each waits for the commit of the one
// before. So while a statement for a row is under way, those who come for it gather,
// in the order in which they come, and the next statement is for all of them: flat
// combining (Hendler, Incze, Shavit, Tzafrir, Flat Combining and the
// Synchronization-Parallelism Tradeoff, 2010), where the lock is the row and the
// critical section the commit. One of the callers does it for all of them, and hands
// that on when it has its own answer: there is no goroutine in the background. Who
// comes to a row that nobody is at goes at once, by the statement of [Stock.Take].
// Rows do not wait for each other: not for a slow commit, and not for the claims of
// another row, on MySQL and MariaDB either (see [Stock.TakeOnce]). What they share is the
// pool: a statement that waits has a connection.
//
// Each gets what it would have got alone, in the order of arrival, also what was left
// then. A take that does not fit is refused, as [Stock.Take] refuses it, and does not
// block a smaller one behind it, unless [Strict] says so. Takes and claims, and puts,
// ride apart: a put between takes ends a batch. The version goes up by how many
// were served. An id that is written in two ways ('abc' and 'ABC', 1 and "1") is two
// queues, and one row all the same; int, int64 and whatever else is the same number are
// one.
//
// # What it costs
//
// It commits outside of the caller's transaction: a caller that then fails, or a
// process that dies between the commit and the answer, has taken what it did not
// want. With [Combined.TakeOnce] nothing is lost by that: the claim is the record, and
// claiming again tells. Without a claim it is burnt.
//
// # Failure
//
// ctx may end at any moment. Who has not been sent yet leaves. Who has been sent gets
// its true answer, which is waited for until the statement has one, or until nobody
// waits for it any more and the server has ended it; 30 s at most.
//
// A deadlock, a serialization failure and a lock timeout are repeated. A batch that was
// surely not applied for another reason falls apart: into halves, one after the other,
// down to single callers, so that one that is bad fails alone, costs the others a few
// statements, and everybody is served in the order of arrival all the same, with the
// versions that go with it. Where it is the row or the table that is wrong, everybody
// gets that error. Where it is the connection or the server, or where 30 s have passed,
// each caller tries it alone, under its own ctx, 16 of a batch at a time, in no order,
// beside the next batches; and so does one that makes a claim of the same batch for
// another number.
//
// If nobody knows whether a statement was applied, those callers of Take and Put that it
// was for get [sqldb.Uncertain], and nothing is tried again for them. Those of TakeOnce get
// what the claims say, and Uncertain only if the database could not be asked; claiming
// again tells. A caller whose goroutine ends while it sends a batch (a panic, or
// [runtime.Goexit], in a driver) leaves Uncertain to those who have no answer yet.
//
// Other processes, and everything else that a [Stock] does, may be at the same rows
// at the same time: to them a batch is one take more, with the locks in the same order:
// claims, sorted, then the row. On MySQL and MariaDB a claim that several processes make
// at once, and that is refused to the first of them, may make a deadlock of the others,
// which is repeated.
type Combined struct {
	s   *Stock
	db  *sqldb.DB
	o   combineOptions
	sql combineStatements

	bound   time.Duration // of a batch
	members sync.Pool     // *member

	mu      sync.Mutex
	lines   map[any]*line // those that somebody is at
	waiting int           // how many are in all queues
	alone   int           // how many try it singly, after their batch has failed
	closed  bool
	drained chan struct{} // closed when it is closed and nobody is left
}

// Combine makes a [Combined] of the database. An option that is wrong is [ErrInvalid].
// Close it when it is not needed any more.
func (s *Stock) Combine(db *sqldb.DB, opts ...CombineOption) (*Combined, error) {
	o := combineOptions{batch: DefaultMaxBatch, waiting: DefaultMaxWaiting}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("%w: Combine of %s: an option is nil", ErrInvalid, s.table.Name)
		}
		if err := opt(&o); err != nil {
			return nil, fmt.Errorf("%w: Combine of %s: %w", ErrInvalid, s.table.Name, err)
		}
	}
	if err := s.checkHandle("Combine", db); err != nil {
		return nil, err
	}
	return &Combined{s: s, db: db, o: o, sql: combineStatementsFor(s), bound: flightTime, lines: map[any]*line{}, drained: make(chan struct{})}, nil
}

// Take takes n from the row, and returns how many are left. For what it promises, see
// [Stock.Take] on a DB, and [Combined].
func (c *Combined) Take(ctx context.Context, id any, n int64) (left int64, err error) {
	id, err = c.s.check("Take", c.db, id, n)
	if err != nil {
		return 0, err
	}
	m := c.member(ctx, take, id, n)
	defer c.free(m)
	return c.run(m)
}

// Put puts n back into the row, and returns how many are left: see [Stock.Put].
func (c *Combined) Put(ctx context.Context, id any, n int64) (left int64, err error) {
	id, err = c.s.check("Put", c.db, id, n)
	if err != nil {
		return 0, err
	}
	m := c.member(ctx, put, id, n)
	defer c.free(m)
	return c.run(m)
}

// TakeOnce takes n from the row once for a claim: see [Stock.TakeOnce]. Of callers that
// make one claim at the same time, one receipt is fresh.
func (c *Combined) TakeOnce(ctx context.Context, id any, n int64, claimed string) (Receipt, error) {
	id, err := c.s.check("TakeOnce", c.db, id, n)
	if err != nil {
		return Receipt{}, err
	}
	if err := c.s.checkClaim(&claim{claim: claimed, key: c.s.ownID(id)}); err != nil {
		return Receipt{}, err
	}
	m := c.member(ctx, claiming, id, n)
	defer c.free(m)
	m.claim = claimed
	if _, err := c.run(m); err != nil {
		return Receipt{}, err
	}
	return m.receipt, nil
}

// Close refuses whoever comes from now on with [ErrClosed], without a statement, and waits
// until all others have their answers. It may be called twice, and at the same time. It
// leaves the database open.
func (c *Combined) Close() error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		c.ifDrained()
	}
	c.mu.Unlock()
	<-c.drained
	return nil
}

// ifDrained lets Close go if nobody is left. c.mu is locked.
func (c *Combined) ifDrained() {
	if !c.closed || len(c.lines) > 0 || c.alone > 0 {
		return
	}
	select {
	case <-c.drained:
	default:
		close(c.drained)
	}
}
