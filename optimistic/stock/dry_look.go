package stock

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/sqlnative/locks/sqldb"
)

// looks lets many that ask for one dry row at once read it together. Who asks while a
// read is under way may not have its answer, which may be older than the question:
// it gets that of the next, together with all who have come meanwhile. So each
// answer was read after it was asked for, and a crowd costs two reads and not one
// each.
type looks struct {
	mu   sync.Mutex
	next map[lookKey]*sharedLook // what the next read of a row is to answer
	busy map[lookKey]bool        // a read is under way
}

type lookKey struct {
	db *sqldb.DB
	id any
}

// sharedLook is one read, and those who wait for it.
type sharedLook struct {
	done    chan struct{}
	left    int64
	final   bool // see lookDB
	err     error
	waiting int
	ctx     context.Context // ends when nobody waits any more
	cancel  context.CancelFunc
}

// lookDry reads how many are left of a row that was sold out a moment ago.
func (s *Stock) lookDry(ctx context.Context, db *sqldb.DB, id any) (left int64, final bool, err error) {
	k, ok := key(id)
	if !ok {
		return s.lookDB(ctx, db, id, 0, nil)
	}
	if err := ctx.Err(); err != nil {
		return 0, false, s.explain(id, err)
	}
	at := lookKey{db, k}
	x := &s.looks
	x.mu.Lock()
	if x.next == nil {
		x.next, x.busy = map[lookKey]*sharedLook{}, map[lookKey]bool{}
	}
	l := x.next[at]
	if l == nil {
		l = &sharedLook{done: make(chan struct{})}
		l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
		x.next[at] = l
	}
	l.waiting++
	if !x.busy[at] {
		x.busy[at] = true
		if b, ok := id.([]byte); ok {
			id = bytes.Clone(b) // the caller may be gone before it is read
		}
		go s.lookAll(at, id)
	}
	x.mu.Unlock()
	select {
	case <-l.done:
		return l.left, l.final, l.err
	case <-ctx.Done():
		x.mu.Lock()
		if l.waiting--; l.waiting == 0 {
			l.cancel()
			if x.next[at] == l {
				delete(x.next, at) // or somebody would still join it
			}
		}
		x.mu.Unlock()
		return 0, false, fmt.Errorf("stock: %s id %v: nothing was taken: %w", s.table.Name, id, ctx.Err())
	}
}

// lookAll reads a row for as long as somebody asks.
func (s *Stock) lookAll(at lookKey, id any) {
	x := &s.looks
	for {
		x.mu.Lock()
		l := x.next[at]
		delete(x.next, at)
		if l == nil {
			delete(x.busy, at)
			x.mu.Unlock()
			return
		}
		x.mu.Unlock()
		l.left, l.final, l.err = s.lookDB(l.ctx, at.db, id, 0, nil)
		l.cancel()
		close(l.done)
	}
}
