package stock

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// maxSpread bounds for how many ids a Slotted remembers how many slots there are.
	maxSpread = 1 << 14
	// guessed is how many slots an id is thought to have before it was looked at.
	guessed = 16
	// spreadAge is for how long a number of slots is thought to be right.
	spreadAge = 10 * time.Second
)

// spreads remembers how many slots the ids have. It decides only with which slot a take
// begins; it finds all of them, whatever is remembered.
type spreads struct {
	mu  sync.Mutex
	ids map[any]*spread
}

type spread struct {
	slots int
	next  uint32 // the slot after the last one that was handed out
	seen  time.Time
	// moving is held by who moves stock between the slots: one of a process is enough.
	moving sync.Mutex
}

// of is what is remembered of an id.
func (x *spreads) of(id any) *spread {
	k, ok := key(id)
	if !ok {
		return &spread{slots: guessed, next: rand.Uint32()}
	}
	s := x.ids[k]
	if s == nil {
		if x.ids == nil {
			x.ids = map[any]*spread{}
		}
		for old := range x.ids { // any of them
			if len(x.ids) < maxSpread {
				break
			}
			delete(x.ids, old)
		}
		s = &spread{slots: guessed, next: rand.Uint32()}
		x.ids[k] = s
	}
	return s
}

// start says with which slot to begin. The first is drawn at random, so that processes
// begin apart from each other; those after it go around, so that the goroutines of one
// process are apart. old says that the number of slots should be looked at.
func (x *spreads) start(id any) (slot int64, old bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.of(id)
	s.next++
	return int64(s.next % uint32(s.slots)), time.Since(s.seen) > spreadAge
}

// learn keeps how many slots there are.
func (x *spreads) learn(id any, slots int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.of(id)
	s.slots, s.seen = min(max(slots, 1), MaxSlots), time.Now()
}

// tryMove reports whether nobody else in this process moves stock of the id, until
// done is called.
func (x *spreads) tryMove(id any) (done func(), ok bool) {
	x.mu.Lock()
	s := x.of(id)
	x.mu.Unlock()
	if !s.moving.TryLock() {
		return nil, false
	}
	return s.moving.Unlock, true
}
