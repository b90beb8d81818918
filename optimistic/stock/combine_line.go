package stock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"
)

// What a member wants.
const (
	take = iota
	put
	claiming
)

// Where a member is.
const (
	queued    = iota
	nominated // it is the first of its line, and was told to send the next batch
	sent
)

// What a member is told.
type word int

const (
	lead     word = iota // send the next batch, you are the first of it
	answered             // left, receipt and err say what became of it
	alone                // the batch failed: try it alone
)

// member is one caller.
type member struct {
	ctx   context.Context
	kind  int
	id    any
	n     int64
	claim string

	told       chan word // holds one
	prev, next *member   // in the queue of its line
	state      int
	came       time.Time // where there is a trace
	flight     *flight   // what it was sent with

	// What became of it; decided says that something has.
	decided bool
	alone   bool
	left    int64
	receipt Receipt
	err     error
	same    *member // the member that makes the same claim, before this one
	place   int     // among the claims of an attempt, sorted
}

// asks is another member that wants the same, of whom nothing has become yet: m may have
// been in a batch that failed.
func (m *member) asks(ctx context.Context) *member {
	return &member{ctx: ctx, kind: m.kind, id: m.id, n: m.n, claim: m.claim}
}

func (c *Combined) member(ctx context.Context, kind int, id any, n int64) *member {
	m, ok := c.members.Get().(*member)
	if !ok {
		m = &member{told: make(chan word, 1)}
	}
	m.ctx, m.kind, m.id, m.n = ctx, kind, id, n
	return m
}

// free gives the member back. Nobody else knows it any more: it has left the queue, or
// was told its answer.
func (c *Combined) free(m *member) {
	*m = member{told: m.told}
	c.members.Put(m)
}

// line is the queue of one row. It is there for as long as somebody is at the row.
type line struct {
	key         any
	first, last *member
	size        int

	// What the last batch knew of the row; its sender alone looks at it.
	own    string // the id as the row itself writes it
	ownSet bool
	left   int64 // how many are left, most likely
	known  bool  // left is what was read
	miss   int   // for how many batches it is not relied on
}

// missPause is how many batches do not rely on what is left, after it was something
// else: others are at the row.
const missPause = 16

func (l *line) knows(left int64) { l.left, l.known = left, true }

func (l *line) missed() { l.known, l.miss = false, missPause }

// sure reports whether what is left can be relied on, most likely.
func (l *line) sure() bool {
	if l.miss > 0 {
		l.miss--
		return false
	}
	return l.known
}

// push puts m at the end.
func (l *line) push(m *member) {
	m.prev = l.last
	if l.last == nil {
		l.first = m
	} else {
		l.last.next = m
	}
	l.last = m
	l.size++
}

// remove takes m out.
func (l *line) remove(m *member) {
	if m.prev == nil {
		l.first = m.next
	} else {
		m.prev.next = m.next
	}
	if m.next == nil {
		l.last = m.prev
	} else {
		m.next.prev = m.prev
	}
	m.prev, m.next = nil, nil
	l.size--
}

// run has m served.
func (c *Combined) run(m *member) (left int64, err error) {
	k, _ := key(m.id)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return 0, fmt.Errorf("%w: %s id %v", ErrClosed, c.s.table.Name, m.id)
	}
	l := c.lines[k]
	if l == nil { // nobody is at the row: go at once
		l = &line{key: k}
		c.lines[k] = l
		c.mu.Unlock()
		defer c.handOn(l)
		return c.first(l, m)
	}
	if c.waiting+c.alone >= c.o.waiting {
		c.mu.Unlock()
		return 0, fmt.Errorf("%w: %s id %v: %d wait already, and no more may (MaxWaiting); try again later, or refuse whoever asked", ErrBusy, c.s.table.Name, m.id, c.o.waiting)
	}
	if c.o.trace != nil {
		m.came = time.Now()
	}
	l.push(m)
	c.waiting++
	c.mu.Unlock()

	switch w, err := c.wait(l, m); {
	case err != nil:
		return 0, err
	case w == answered:
		return m.left, m.err
	case w == alone:
		defer c.leftAlone()
		return c.tryAlone(m)
	}
	return c.lead(l, m)
}

// single serves m by itself, under its own ctx.
func (c *Combined) single(m *member) (left int64, err error) {
	switch m.kind {
	case take:
		return c.s.Take(m.ctx, c.db, m.id, m.n)
	case put:
		return c.s.Put(m.ctx, c.db, m.id, m.n)
	}
	m.receipt, err = c.singleClaim(m)
	return 0, err
}

// first is single for one that has the row's line to itself.
func (c *Combined) first(l *line, m *member) (left int64, err error) {
	if t := c.o.trace; t == nil || t.Batch == nil {
		left, err = c.single(m)
		l.learns(m, left, err)
		return left, err
	}
	begun := time.Now()
	left, err = c.single(m)
	l.learns(m, left, err)
	told := Batch{ID: m.id, Size: 1, Took: time.Since(begun)}
	if !m.came.IsZero() {
		told.Waited = begun.Sub(m.came)
	}
	switch {
	case err == nil && (m.kind != claiming || m.receipt.Fresh):
		told.Served = 1
	case errors.Is(err, ErrSoldOut), errors.Is(err, ErrClaimMismatch):
	default:
		told.Err = err
	}
	c.o.trace.Batch(told)
	return left, err
}

// learns keeps what one that was served by itself has found.
func (l *line) learns(m *member, left int64, err error) {
	switch {
	case err != nil:
	case m.kind != claiming:
		l.knows(left)
	case m.receipt.Fresh:
		l.knows(m.receipt.Left)
	}
}

// leftAlone says that one that tried it singly has done so.
func (c *Combined) leftAlone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alone--
	c.ifDrained()
}

// wait waits until m is told something. If ctx ends before it was sent, it leaves the
// queue, and nothing was changed.
func (c *Combined) wait(l *line, m *member) (word, error) {
	select {
	case w := <-m.told:
		if w != lead || m.ctx.Err() == nil {
			return w, nil
		}
		m.told <- w // it was told to send, and does not want to any more
	case <-m.ctx.Done():
	}
	c.mu.Lock()
	if m.state == sent {
		f := m.flight
		c.mu.Unlock()
		f.leave()
		return <-m.told, nil
	}
	// The interleaving: it is told to send the next batch, and its ctx ends before it
	// does. Then it hands that on, or nobody would be told any more.
	was := m.state
	l.remove(m)
	c.waiting--
	if was == nominated {
		<-m.told
		c.nominate(l)
	}
	c.mu.Unlock()
	return 0, fmt.Errorf("stock: %s id %v: nothing was changed: it was not sent yet: %w", c.s.table.Name, m.id, m.ctx.Err())
}

// handOn lets the next batch go. Whoever calls it has sent the last one.
func (c *Combined) handOn(l *line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nominate(l)
}

// nominate tells the first of a line to send the next batch; a line without anybody
// goes. c.mu is locked.
func (c *Combined) nominate(l *line) {
	if l.first == nil {
		delete(c.lines, l.key)
		c.ifDrained()
		return
	}
	l.first.state = nominated
	l.first.told <- lead
}

// yieldTime bounds for how long whoever sends a batch lets others run first.
const yieldTime = 200 * time.Microsecond

// yield lets those run who have just got their answers, and most likely come again: until
// that has not made the batch longer twice. Without it the first to wake up would send a
// batch of the few that were faster, and the others would wait for its commit.
func (c *Combined) yield(l *line) {
	begun := time.Now()
	for before, still := 0, 0; still < 2; {
		c.mu.Lock()
		size := l.size
		c.mu.Unlock()
		switch {
		case size == 0, size >= c.o.batch, time.Since(begun) > yieldTime:
			return
		case size == before:
			still++
		default:
			before, still = size, 0
		}
		runtime.Gosched()
	}
}

// lead sends a batch of which m is the first.
func (c *Combined) lead(l *line, m *member) (left int64, err error) {
	defer func() { // also if the trace panics
		if m.alone {
			c.leftAlone()
		}
	}()
	c.send(l, m)
	if m.alone { // the next batch does not wait for it
		return c.tryAlone(m)
	}
	return m.left, m.err
}

func (c *Combined) send(l *line, m *member) {
	defer c.handOn(l)
	c.yield(l)
	f := c.gather(l, m)
	if len(f.batch) > 1 {
		c.fly(f, m)
		// Those who have just got their answers, and come again, find the line still there,
		// and what it knows of the row. Without this the first of them would find nobody at
		// the row and go alone, and all others would wait for its commit: every second
		// commit would be for one.
		runtime.Gosched()
		c.yield(l)
		return
	}
	f.cancel()
	m.left, m.err = c.first(l, m)
}

// gather makes a batch of m, which is the first of its line, and of those behind it
// that can ride with it.
func (c *Combined) gather(l *line, m *member) *flight {
	f := &flight{c: c, l: l, id: m.id, kind: m.kind}
	// Set before anybody can leave it.
	f.ctx, f.cancel = context.WithTimeout(context.WithoutCancel(m.ctx), c.bound)
	c.mu.Lock()
	defer c.mu.Unlock()
	f.batch = make([]*member, 0, min(l.size, c.o.batch))
	sum := int64(0)
	x := l.first
	for ; x != nil && x.kind == f.kind && len(f.batch) < c.o.batch && x.n <= math.MaxInt64-sum; x = x.next {
		sum += x.n
		x.state, x.flight = sent, f
		f.batch = append(f.batch, x)
	}
	if x == nil {
		l.last = nil
	} else {
		x.prev = nil
	}
	l.first = x
	l.size -= len(f.batch)
	c.waiting -= len(f.batch)
	return f
}
