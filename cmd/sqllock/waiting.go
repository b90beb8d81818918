package main

import (
	"context"
	"time"
)

// waiterJSON is who waits for a lock.
type waiterJSON struct {
	Name   string     `json:"name"`
	Ticket int64      `json:"ticket"` // 0: it stands in no queue
	Since  time.Time  `json:"since"`
	Holder holderJSON `json:"holder"`
}

// waiting reads who waits, as far as they show themselves.
func (s *session) waiting(ctx context.Context) ([]waiterJSON, error) {
	all, err := s.locker.Waiters(ctx)
	if err != nil {
		return nil, err
	}
	r := make([]waiterJSON, 0, len(all))
	for _, w := range all {
		r = append(r, waiterJSON{w.Name, w.Ticket, w.Since.UTC(), holderOf(w.Holder)})
	}
	return r, nil
}
