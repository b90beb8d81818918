package main

import "sync"

// barrier holds everybody back until all that take part have come.
type barrier struct {
	mu      sync.Mutex
	opened  *sync.Cond
	parties int
	waiting int
	round   int
}

func newBarrier(parties int) *barrier {
	b := &barrier{parties: parties}
	b.opened = sync.NewCond(&b.mu)
	return b
}

// wait returns when all have called it.
func (b *barrier) wait() {
	b.mu.Lock()
	defer b.mu.Unlock()
	round := b.round
	b.waiting++
	b.open()
	for b.round == round {
		b.opened.Wait()
	}
}

// leave takes one of those that take part out.
func (b *barrier) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parties--
	b.open()
}

// open opens the barrier if everybody is there.
func (b *barrier) open() {
	if b.waiting == b.parties {
		b.waiting = 0
		b.round++
		b.opened.Broadcast()
	}
}
