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
// is refused with [ErrBusy]. Those that a statement is under way for are not counted.
// Default: [DefaultMaxWaiting].
func MaxWaiting(n int) CombineOption {
	return func(o *combineOptions) error {
		if n < 1 {
			return fmt.Errorf("MaxWaiting(%d): it has to be at least 1", n)
		}
		o.waiting = n
		return nil
	}
}

// Strict has a take that does not fit block those behind it that ride in the same
// batch, smaller ones too: they are refused with it. Without it, whoever fits is
// served.
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
// called synchronously, by the goroutine of one of the callers: they must be quick and
// safe for concurrent use.
type CombineTrace struct {
	// Batch: a batch has its answers.
	Batch func(Batch)
}

// Batch says what became of one batch.
type Batch struct {
	// ID is the row's id, as the first of the callers gave it.
	ID any
	// Size is for how many callers it was, Served how many of them it has changed
	// something for.
	Size, Served int
	// Waited is how long the first of them has waited until it was sent, and Took how
	// long its answers took then.
	Waited, Took time.Duration
	// Alone is how many have to try it singly, because the batch failed.
	Alone int
	// Err is the error of the batch, if it failed as one.
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
// Rows do not wait for each other, but for what [Stock.TakeOnce] says of claims on MySQL
// and MariaDB.
//
// Each gets what it would have got alone, in the order of arrival, also what was left
// then. A take that does not fit is refused, as [Stock.Take] refuses it, and does not
// block a smaller one behind it, unless [Strict] says so. Takes and claims, and puts,
// ride apart: a put between takes ends a batch. The version goes up by how many
// were served. Rows are independent of each other; an id that is written in two ways
// ('abc', 'ABC') is two queues, and one row all the same.
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
// A batch that was surely not applied, for another reason than a deadlock, a
// serialization failure or a lock timeout (these are repeated), falls apart: each of
// its callers tries it alone, in no order, and one that is bad fails alone. If nobody
// knows whether it was applied, the callers of Take and Put get [sqldb.Uncertain], and
// those of TakeOnce get what the claims say.
//
// Other processes, and everything else that a [Stock] does, may be at the same rows
// at the same time: to them a batch is one take more, with the locks in the same order.
type Combined struct {
	s   *Stock
	db  *sqldb.DB
	o   combineOptions
	sql combineStatements

	members sync.Pool // *member

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
	return &Combined{s: s, db: db, o: o, sql: combineStatementsFor(s), lines: map[any]*line{}, drained: make(chan struct{})}, nil
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

// Close refuses whoever comes from now on with [ErrClosed], and waits until all others
// have their answers. It may be called twice.
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
