package lock

import "time"

// Until is until when this process may act on the lock as things stand, by its own
// monotonic clock: each renewal moves it on. ok is false where nothing bounds it. It
// is for whoever has to stop something from outside before then, such as a process.
func (l *Lock) Until() (until time.Time, ok bool) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.until, !l.c.until.IsZero()
}
