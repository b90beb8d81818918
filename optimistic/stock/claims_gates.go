package stock

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// claimGates is how many gates a stock table has on MySQL and MariaDB, see mysqlClaims:
// of so many claims, two may have one gate, and wait for each other until the end of
// the transaction.
const claimGates = 256

// claimGate is the name of a gate, where claims have theirs: no claim has a NUL.
func claimGate(i int) string { return fmt.Sprintf("\x00gate %02x", i) }

// gate is the gate of a claim.
func (c claim) gate() string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.key + "\x00" + c.claim))
	return claimGate(int(h.Sum32() % claimGates))
}

// gates are the databases in which the gates are known to be.
type gates struct {
	mu      sync.Mutex
	known   map[*sqldb.DB]bool
	opening map[*sqldb.DB]chan struct{} // closed when whoever is at it has ended
}

// turn waits until the gates are known, or it is the caller's turn to open them, which
// ends with done: a crowd that opened them together would wait for each other in the
// database, with all connections of the pool.
func (g *gates) turn(ctx context.Context, db *sqldb.DB) (done func(), ok bool) {
	for {
		g.mu.Lock()
		if g.known[db] {
			g.mu.Unlock()
			return nil, false
		}
		other, is := g.opening[db]
		if !is {
			mine := make(chan struct{})
			if g.opening == nil {
				g.opening = map[*sqldb.DB]chan struct{}{}
			}
			g.opening[db] = mine
			g.mu.Unlock()
			return func() {
				g.mu.Lock()
				defer g.mu.Unlock()
				delete(g.opening, db)
				close(mine)
			}, true
		}
		g.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, false
		}
	}
}

func (g *gates) is(db *sqldb.DB) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known[db]
}

func (g *gates) remember(db *sqldb.DB, there bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known == nil || len(g.known) >= maxDry {
		g.known = map[*sqldb.DB]bool{}
	}
	g.known[db] = there
}

// gatesWait bounds how long a transaction waits for another connection.
const gatesWait = time.Second

// openGates makes the gates, once for a stock table, outside of any transaction: one
// that is rolled back would take them along, and make a deadlock of those who wait
// there. So it is where no connection is to be had for them, when insertClaim makes
// them in the caller's transaction: until one of those commits. What fails here,
// insertClaim says.
func (s *Stock) openGates(ctx context.Context, h sqldb.Handle) {
	db := h.DB()
	if s.claims.gates == "" || s.gates.is(db) {
		return
	}
	if _, inTx := h.(*sqldb.Tx); inTx {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, gatesWait)
		defer cancel()
	}
	done, ok := s.gates.turn(ctx, db)
	if !ok {
		return
	}
	defer done()
	err := sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) error {
		var n int
		if err := db.QueryRow(ctx, s.claims.countGates).Scan(&n); err != nil || n == claimGates {
			return err
		}
		_, err := db.Exec(ctx, s.claims.gates)
		return err
	})
	if err == nil {
		s.gates.remember(db, true)
	}
}

// errGateTaken: somebody is at the claim's gate, or it is not there.
var errGateTaken = errors.New("stock: the gate of the claim is taken")

// insertClaim is makeClaim on MySQL and MariaDB. A claim that waits at no gate is
// errGateTaken if it would have to: that somebody may have another claim, of another row.
func (s *Stock) insertClaim(ctx context.Context, tx *sqldb.Tx, c *claim) (made bool, err error) {
	st := s.claims.insert
	if c.passes {
		st.query += " SKIP LOCKED"
	}
	args := st.args(s.db.Kind(), *c)
	ours := false // the gates were made in this transaction, which may yet be rolled back
	for range rounds {
		res, err := tx.Exec(ctx, st.query, args...)
		switch {
		case sqldb.ClassOf(err) == sqldb.Duplicate:
			return false, nil
		case err != nil:
			return false, s.explainClaim(c, err)
		case res.RowsAffected == 1:
			if !ours && !s.gates.is(tx.DB()) {
				s.gates.remember(tx.DB(), true)
			}
			return true, nil
		}
		if c.passes {
			// Somebody is at it, as a rule.
			var n int
			has := s.claims.hasGate
			if err := tx.QueryRow(ctx, has.query, has.args(s.db.Kind(), *c)...).Scan(&n); err == nil && n == 0 {
				s.gates.remember(tx.DB(), false)
			}
			return false, errGateTaken
		}
		// There was no other connection to make it with, or somebody has emptied the table.
		s.gates.remember(tx.DB(), false)
		ours = true
		if _, err := tx.Exec(ctx, s.claims.gates); err != nil {
			return false, s.explainClaim(c, err)
		}
	}
	return false, fmt.Errorf("stock: %s id %v: the gates of its claims vanish from %s whenever they are made; nothing was taken", s.table.Name, c.id, s.db.Table("claims"))
}
