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
	lines map[string][]chan struct{}
}

// Enter waits until the caller is at the head of the line for name, or ctx ends,
// which it returns. leave lets the next one go ahead; it is safe to call twice.
func (q *Queue) Enter(ctx context.Context, name string) (leave func(), err error) {
	head := make(chan struct{})
	q.mu.Lock()
	if q.lines == nil {
		q.lines = map[string][]chan struct{}{}
	}
	q.lines[name] = append(q.lines[name], head)
	if len(q.lines[name]) == 1 {
		close(head)
	}
	q.mu.Unlock()

	leave = sync.OnceFunc(func() { q.leave(name, head) })
	select {
	case <-head:
		return leave, nil
	case <-ctx.Done():
		// It may have come to the head just now: leave hands that on.
		leave()
		return nil, ctx.Err()
	}
}

// Len is how many wait for name, the head included.
func (q *Queue) Len(name string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.lines[name])
}

func (q *Queue) leave(name string, who chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.lines[name]
	for i, c := range line {
		if c != who {
			continue
		}
		line = append(line[:i], line[i+1:]...)
		switch {
		case len(line) == 0:
			delete(q.lines, name) // a name that nobody waits for costs nothing
		default:
			q.lines[name] = line
			if i == 0 {
				close(line[0])
			}
		}
		return
	}
}
