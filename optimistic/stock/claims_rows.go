package stock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// makeClaim inserts the claim, after waiting for whoever has inserted it and not yet
// committed. made is false if it is there.
func (s *Stock) makeClaim(ctx context.Context, tx *sqldb.Tx, c *claim) (at time.Time, made bool, err error) {
	if s.db.Kind().InnoDB() {
		made, err := s.insertClaim(ctx, tx, c)
		return at, made, err
	}
	st := s.claims.insert
	err = tx.QueryRow(ctx, st.query, st.args(s.db.Kind(), *c)...).Scan(&at)
	switch {
	case err == nil:
		return at, true, nil
	case errors.Is(err, sql.ErrNoRows):
		return at, false, nil
	}
	return at, false, s.explainClaim(c, err)
}

// findClaim reads the receipt of a claim.
func (s *Stock) findClaim(ctx context.Context, h sqldb.Handle, st claimStatement, c *claim) (r Receipt, found bool, err error) {
	r.Claim = c.claim
	var owner string
	var left *int64
	err = h.QueryRow(ctx, st.query, st.args(s.db.Kind(), *c)...).Scan(&owner, &r.N, &left, &r.At)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Receipt{}, false, nil
	case err != nil:
		return Receipt{}, false, s.explainClaim(c, err)
	}
	r, err = s.receiptOf(c, r, owner, left)
	return r, true, err
}

// receiptOf makes a receipt of a claim's row.
func (s *Stock) receiptOf(c *claim, r Receipt, owner string, left *int64) (Receipt, error) {
	switch {
	case r.N != c.n:
		return Receipt{}, fmt.Errorf("%w: %s id %v: the claim %q was made for %d, and not for %d: one claim is one take", ErrClaimMismatch, s.table.Name, c.id, c.claim, r.N, c.n)
	case left == nil:
		return Receipt{}, fmt.Errorf("%w: %s id %v: the claim %q has no receipt: it was not written by sqllock, or by a transaction that should not have been committed", ErrBadRow, s.table.Name, c.id, c.claim)
	}
	r.Left = *left
	r.Fresh = owner == c.owner
	return r, nil
}

// claimed is a row of the stock as a claim sees it.
type claimed struct {
	key  string // the row's own id
	left int64
	at   *time.Time // when the claim was made, where that comes along
}

// lookClaim reads the row, and says what is wrong with it.
func (s *Stock) lookClaim(ctx context.Context, h sqldb.Handle, st claimStatement, c *claim) (row claimed, err error) {
	rows, err := h.Query(ctx, st.query, st.args(s.db.Kind(), *c)...)
	if err != nil {
		return row, s.explainClaim(c, err)
	}
	defer func() { _ = rows.Close() }()
	var left *int64
	var problem string
	dest := []any{&row.key, &left, &problem}
	if s.db.Kind().InnoDB() && st == s.claims.lookTx {
		dest = append(dest, &row.at)
	}
	found := 0
	for rows.Next() {
		if found++; found > 1 {
			return row, s.several(c.id)
		}
		if err := rows.Scan(dest...); err != nil {
			return row, s.explainClaim(c, err)
		}
	}
	err = errors.Join(rows.Err(), rows.Close())
	switch {
	case err != nil:
		return row, s.explainClaim(c, err)
	case found == 0:
		return row, s.notFound(c.id)
	case problem == snapshot:
		return s.lookClaim(ctx, h, s.claims.lookCurrent, c)
	case problem != "":
		return row, fmt.Errorf("%w: %s id %v: %s", ErrBadRow, s.table.Name, c.id, problem)
	case left == nil:
		return row, fmt.Errorf("%w: %s id %v: the count is NULL", ErrBadRow, s.table.Name, c.id)
	}
	row.left = *left
	return row, nil
}

// dropClaim takes back a claim that this transaction has made, after why. A lock
// timeout on MySQL and MariaDB, or a ctx that ends between two statements, leaves the
// transaction open: a COMMIT would keep a claim for which nothing was taken. So it
// runs detached, and a claim that cannot be dropped ends the transaction.
func (s *Stock) dropClaim(tx *sqldb.Tx, c *claim, why error) error {
	if tx.Err() != nil {
		return why
	}
	ctx, cancel := context.WithTimeout(context.Background(), sqldb.Bound)
	defer cancel()
	_, err := tx.Exec(ctx, s.claims.drop.query, s.claims.drop.args(s.db.Kind(), *c)...)
	switch {
	case err == nil:
		return why
	case errors.Is(err, sql.ErrTxDone), sqldb.ClassOf(err) == sqldb.Aborted, sqldb.ClassOf(err) == sqldb.ConnLost:
		// It is over, or can only be rolled back, to a savepoint from before at most.
		if why == nil {
			why = s.explainClaim(c, err)
		}
		return why
	}
	return spoil(tx, errors.Join(why, s.explainClaim(c, err)))
}

// explainClaim says what to do about an error of the database.
func (s *Stock) explainClaim(c *claim, err error) error {
	table := s.db.TablePrefix() + "claims"
	switch sqldb.ClassOf(err) {
	case sqldb.NoTable, sqldb.NoSchema:
		if strings.Contains(err.Error(), table) || sqldb.ClassOf(err) == sqldb.NoSchema {
			return fmt.Errorf("%w: the table %s is missing: %w", ErrNotMigrated, s.db.Table("claims"), err)
		}
	case sqldb.Serialization:
		return fmt.Errorf("stock: %s id %v, claim %q: made or taken from by another transaction after this one's snapshot; begin it anew: %w", s.table.Name, c.id, c.claim, err)
	}
	return s.explain(c.id, err)
}
