package sqllock

import (
	"context"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// GCOlderThan is GC without its lower bound.
func (l *Locker) GCOlderThan(ctx context.Context, age time.Duration) (int64, error) {
	return l.gc(ctx, age)
}

// Replicate has the Locker write what it would write on a server that certifies
// writes on other nodes.
func (l *Locker) Replicate() { l.sql = statementsFor(l.db, true) }

// RenewStatement is what renews the locks.
func (l *Locker) RenewStatement(locks ...*lock.Lock) (string, []any) {
	var batch []renewal
	for _, k := range locks {
		batch = append(batch, renewal{held: &held{identity: identity{name: k.Name(), owner: k.Owner()}, token: k.Token()}, ttl: lock.DefaultTTL})
	}
	return l.sql.renew(batch)
}

// TakeOver is the take-over as a plain UPDATE, without the lock on the row that it
// should have.
func TakeOver(db *sqldb.DB) string {
	return "UPDATE " + db.Table("locks") + " SET owner = 'intruder', token = token + 1, expires_at = clock_timestamp() + interval '1 hour' WHERE name = $1 AND expires_at <= clock_timestamp()"
}

// Held is how many locks the Locker remembers.
func (l *Locker) Held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}

// Holder is how a holder with that label describes itself.
func Holder(label string) string { return me(label) }

// ShowAfter has waiters be shown after so long, for so long unless their rows are
// moved on.
func (l *Locker) ShowAfter(after, ttl time.Duration) { l.announce.after, l.announce.ttl = after, ttl }

// ShowBound lets a statement about waiters take so long.
func (l *Locker) ShowBound(d time.Duration) { l.announce.bound = d }

// ShowDefaults are after how long waiters are shown, and for how long.
func (l *Locker) ShowDefaults() (after, ttl time.Duration) { return showAfter, showFor }
