// Package waitq is the queue in which the goroutines of one process wait for a
// name. Only its head talks to the database: a thousand waiters cost it what one
// costs, and are served in their order.
package waitq

import (
	"context"
	"sync"
)

// Queue has one line of waiters for each name. Its zero value is ready.
type Queue struct {
	mu    sync.Mutex
	lines map[string][]*place
}

// place is one waiter's place in a line.
type place struct {
	q    *Queue
	name string
	head chan struct{} // closed when it comes to the head; nil: it has been there from the start
}

// Enter waits until the caller is at the head of the line for name, or ctx ends,
// which it returns. leave lets the next one go ahead; it is safe to call twice.
func (q *Queue) Enter(ctx context.Context, name string) (leave func(), err error) {
	p := &place{q: q, name: name}
	q.mu.Lock()
	if q.lines == nil {
		q.lines = map[string][]*place{}
	}
	line := append(q.lines[name], p)
	q.lines[name] = line
	if len(line) > 1 {
		p.head = make(chan struct{})
	}
	q.mu.Unlock()
	if p.head == nil {
		if err := ctx.Err(); err != nil {
			p.leave()
			return nil, err
		}
		return p.leave, nil
	}
	select {
	case <-p.head:
		return p.leave, nil
	case <-ctx.Done():
		// It may have come to the head just now: leave hands that on.
		p.leave()
		return nil, ctx.Err()
	}
}

// Head takes the place at the head of the line for name, if nobody stands in it: for
// who tries before it waits, so that those who come meanwhile stand behind it. Else
// ok is false. leave is that of Enter.
func (q *Queue) Head(name string) (leave func(), ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines[name]) > 0 {
		return nil, false
	}
	if q.lines == nil {
		q.lines = map[string][]*place{}
	}
	p := &place{q: q, name: name}
	q.lines[name] = []*place{p}
	return p.leave, true
}

// Len is how many wait for name, the head included.
func (q *Queue) Len(name string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.lines[name])
}

// leave takes it out of its line; a second time it is not there any more.
func (p *place) leave() {
	q := p.q
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.lines[p.name]
	for i, who := range line {
		if who != p {
			continue
		}
		line = append(line[:i], line[i+1:]...)
		if len(line) == 0 {
			delete(q.lines, p.name) // a name that nobody waits for costs nothing
			return
		}
		q.lines[p.name] = line
		if i == 0 {
			close(line[0].head)
		}
		return
	}
}
