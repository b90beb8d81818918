package stock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sqlnative/locks/sqldb"
)

// Receipt says what was taken for a claim. Whoever makes the claim again gets the
// first receipt again.
type Receipt struct {
	// Claim is the identity of the take; N is how many were taken, and Left is how
	// many were left then.
	Claim   string
	N, Left int64
	// At is when, by the database's clock.
	At time.Time
	// Fresh says that it was this call that took. It is false for one that came
	// again.
	Fresh bool
}

// MaxClaim is how many bytes a claim has at most, and the text of a row's id that is
// claimed from.
const MaxClaim = 255

// TakeOnce takes n from the row once for a claim: a user, an order, a message. Called
// again with the same claim, by anybody and at any time, it takes nothing and
// returns the first receipt, with Fresh false; if n is another, it is
// [ErrClaimMismatch]. So it can be repeated whenever its outcome is unknown: after a
// crash, a broken connection, a message that is delivered twice.
//
// Claim and take are one transaction. A refusal ([*ShortError], [ErrNotFound])
// makes no claim, also if the caller commits: the next call tries again. Who makes a
// claim that somebody else has made and not yet committed waits for him, and takes if
// he rolls back.
//
// The claim is 1 to [MaxClaim] bytes of UTF-8 without NUL, and every byte counts. It
// belongs to the row: the same claim on another row, or on the same id of another
// stock table, is another. It makes no difference how the id is written ('abc' and
// 'ABC' where the column takes them for one), nor how the table is named (t_bonus
// and shop.t_bonus). A renamed table, or an id that is changed, has none of its claims.
//
// On a DB it is a transaction of its own, READ COMMITTED where the server allows it,
// repeated after a deadlock, a serialization failure or a lock timeout. ctx may end
// at any moment: nil says that the receipt stands, also then, and any error but
// [sqldb.Uncertain] that this call has taken nothing. If no answer to COMMIT comes,
// the claim is looked for, so that Uncertain is left only where the database could
// not be asked any more; calling TakeOnce again tells.
//
// In a transaction the receipt stands when that commits. At READ COMMITTED a claim
// that is there, and a refusal, leave the transaction usable, on PostgreSQL as well.
// Under REPEATABLE READ or SERIALIZABLE a claim that was made after the
// transaction's snapshot is a serialization failure on PostgreSQL, and on MariaDB
// with innodb_snapshot_isolation: the error says so, [sqldb.Retryable] reports it, and
// the transaction has to begin anew. Claims are locked before rows of the stock: a
// transaction that takes and then claims can deadlock with one that claims and then
// takes, and the error of that is retryable.
//
// It needs the table of claims ([ErrNotMigrated]); [Stock.PruneClaims] keeps it small.
// It is two round trips, on MySQL and MariaDB three, besides BEGIN and COMMIT; two if
// the claim was made before; some more if the id is not written as the row has it. On
// MySQL and MariaDB the table of claims has some rows for the stock table itself, which
// the first TakeOnce of a Stock looks for, on a connection of its own: there claims
// queue, so that a refusal of one makes no deadlock of those who wait for it. Of 256
// claims of one stock table, whatever their ids, about one has the queue of another,
// and then waits for its transaction: keep transactions that claim short there. A
// [Combined] waits for no claim of another row.
func (s *Stock) TakeOnce(ctx context.Context, h sqldb.Handle, id any, n int64, claimed string) (Receipt, error) {
	id, err := s.check("TakeOnce", h, id, n)
	if err != nil {
		return Receipt{}, err
	}
	c := &claim{id: id, key: s.ownID(id), claim: claimed, owner: rand.Text(), n: n}
	if err := s.checkClaim(c); err != nil {
		return Receipt{}, err
	}
	s.openGates(ctx, h)
	if tx, ok := h.(*sqldb.Tx); ok {
		return s.takeClaimed(ctx, tx, c, true)
	}
	var r Receipt
	err = s.reclaiming(ctx, h, func() (err error) {
		r, err = s.takeOnce(ctx, h.DB(), c)
		return err
	})
	if err != nil {
		return Receipt{}, err
	}
	return r, nil
}

// checkClaim refuses what no claim can be.
func (s *Stock) checkClaim(c *claim) error {
	why := ""
	switch {
	case c.claim == "":
		why = "the claim is empty"
	case len(c.claim) > MaxClaim:
		why = fmt.Sprintf("the claim has %d bytes, more than %d", len(c.claim), MaxClaim)
	case !utf8.ValidString(c.claim):
		why = "the claim is no UTF-8"
	case strings.ContainsRune(c.claim, 0):
		why = "the claim has a NUL"
	case len(c.key) > MaxClaim:
		why = fmt.Sprintf("the id's text has %d bytes, more than %d", len(c.key), MaxClaim)
	}
	if why == "" {
		return nil
	}
	return fmt.Errorf("%w: TakeOnce of %s: %s", ErrInvalid, s.table.Name, why)
}

// ownID is how the row most likely writes its own id: a guess, which the database
// corrects. A claim that is stored has it from the row itself.
func (s *Stock) ownID(id any) string {
	if b, ok := id.([]byte); ok && !s.db.Kind().InnoDB() {
		return `\x` + hex.EncodeToString(b)
	}
	if b, ok := id.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(id)
}

// takeTries is how often a take whose COMMIT had no answer is begun anew, after it
// was found that it had not been applied.
const takeTries = 3

// takeOnce is TakeOnce in a transaction of its own.
func (s *Stock) takeOnce(ctx context.Context, db *sqldb.DB, c *claim) (r Receipt, err error) {
	if s.dry.is(c.id) {
		if r, err := s.claimOfDry(ctx, db, c); err != nil || r != (Receipt{}) {
			return r, err
		}
		s.dry.forget(c.id)
	}
	op := fmt.Sprintf("take %d of %s %v for the claim %q", c.n, s.table.Name, c.id, c.claim)
	for range takeTries {
		err = inOwn(ctx, db, op, func(ctx context.Context, tx *sqldb.Tx) (err error) {
			r, err = s.takeClaimed(ctx, tx, c, false)
			return err
		})
		if errors.Is(err, ErrSoldOut) {
			s.dry.remember(c.id)
		}
		if !sqldb.Uncertain(err) {
			return r, err
		}
		settled, made, serr := s.settleClaim(ctx, db, c)
		switch {
		case errors.Is(serr, ErrClaimMismatch):
			return Receipt{}, serr
		case serr != nil:
			return Receipt{}, fmt.Errorf("%w; call TakeOnce again with the same claim, which tells (%w)", err, notApplied{serr})
		case made:
			return settled, nil
		case ctx.Err() != nil:
			return Receipt{}, notApplied{fmt.Errorf("stock: %s: nothing was taken: %w", op, ctx.Err())}
		}
	}
	return Receipt{}, notApplied{fmt.Errorf("stock: %s: nothing was taken: %w", op, cause(err))}
}

// claimOfDry answers a take of a row that was sold out a moment ago, and makes no
// claim for it that would be rolled back. A zero receipt says that there is something
// left.
//
// The row is read before the claim: if the take that this claim has made is the one
// after which too little was left, then the claim is seen as well. The other way
// round, it could be committed between the two.
func (s *Stock) claimOfDry(ctx context.Context, db *sqldb.DB, c *claim) (Receipt, error) {
	row, err := s.lookClaim(ctx, db, s.claims.look, c)
	if err != nil {
		return Receipt{}, err
	}
	short := s.refuseTake(c.id, c.n, row.left)
	if short == nil {
		return Receipt{}, nil
	}
	of := *c
	of.key = row.key
	r, found, err := s.findClaim(ctx, db, s.claims.find, &of)
	if err != nil || found {
		return r, err
	}
	return Receipt{}, short
}
