package sqllock

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/sqlnative/locks/lock"
)

const showWaiters = "sqllock.ShowWaiters"

// ShowWaiters has those who wait be seen: by [Locker.Waiters] of any process, and by
// "sqllock ls". Who has waited for a second gets a row in the table of tickets, with
// host, pid and [lock.Label]. The row is removed when the waiting ends, however it
// does. That of a process that was killed, or that is cut off from the database,
// expires 15 s after it was last moved on, which is done every 5 s.
//
// Off by default, for a wait then costs an insert, a delete, and an update each 5 s;
// those of one Locker share them. Waits of less than a second cost nothing.
//
// It never fails the waiting, and is no queue: who waits is granted the lock as
// without it. A row that cannot be written soon is not there: for want of the right to
// write to the table, of a connection, or of an answer. One that cannot be removed
// shows for up to 15 s somebody who does not wait any more. A statement takes a
// connection of the pool for a second at most: if the table does not answer, and the
// pool has but one, a grant may come later by that. An option of New and of Acquire.
func ShowWaiters() lock.Option { return lock.Own("sqllock", showWaiters, true) }

// Waiter is somebody who waits for a lock.
type Waiter struct {
	Name   string
	Holder lock.Holder // who waits; Label is that of the Acquire
	// Since is when the waiting began, by the database's clock.
	Since time.Time
	// Ticket is the place in the queue of the lock; 0: it stands in none, but polls.
	Ticket int64
}

// Waiters returns those who wait and are shown: see [ShowWaiters]. They come by name,
// and who has waited for longest comes first, behind those who stand in a queue.
func (l *Locker) Waiters(ctx context.Context) ([]Waiter, error) {
	rows, err := l.db.Query(ctx, l.sql.waiters.query)
	if err != nil {
		return nil, l.explain("*", err)
	}
	defer func() { _ = rows.Close() }()
	var all []Waiter
	for rows.Next() {
		var w Waiter
		var holder *string
		if err := rows.Scan(&w.Name, &w.Ticket, &w.Since, &holder); err != nil {
			return nil, err
		}
		if holder != nil {
			_ = json.Unmarshal([]byte(*holder), &w.Holder) // for people
		}
		w.Ticket = max(w.Ticket, 0)
		all = append(all, w)
	}
	slices.SortStableFunc(all, func(a, b Waiter) int {
		if (a.Ticket == 0) != (b.Ticket == 0) && a.Name == b.Name {
			return cmp.Compare(b.Ticket, a.Ticket)
		}
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Ticket, b.Ticket), a.Since.Compare(b.Since))
	})
	return all, rows.Err()
}
