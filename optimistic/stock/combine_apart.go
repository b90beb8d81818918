package stock

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqlnative/locks/sqldb"
)

// aloneAtOnce is how many of a batch try it alone at the same time: as many as wait for
// one row in vain, and each of them has a connection.
const aloneAtOnce = 16

// maxParts is how many parts of a batch may fail until its members are served one by one:
// enough for a few that are bad among [DefaultMaxBatch], and where all are, halving them
// would only double the statements.
const maxParts = 64

// serve serves ms, in their order. What the database does not take as one falls apart
// into two halves, one after the other, and so on: so one that is bad costs a few
// statements, fails alone, and the others have their turns as if it had come alone.
func (f *flight) serve(ctx context.Context, ms []*member) {
	err := f.part(ctx, ms)
	ms = undecided(ms)
	if len(ms) == 0 {
		return
	}
	f.note(err)
	switch blame(ctx, err) {
	case theAnswer:
		f.doubt(ms, err)
	case theRow:
		for _, m := range ms {
			m.err, m.decided = err, true
		}
	case theServer:
		for _, m := range ms {
			m.alone, m.decided = true, true
		}
	default:
		if f.failed++; len(ms) > 1 && f.failed < maxParts {
			f.serveHalf(ctx, ms[:len(ms)/2])
			f.serveHalf(ctx, ms[len(ms)/2:])
			return
		}
		for _, m := range ms {
			f.serveHalf(ctx, []*member{m})
		}
	}
}

// serveHalf serves ms, of which there may be one.
func (f *flight) serveHalf(ctx context.Context, ms []*member) {
	switch {
	case len(ms) > 1:
		f.serve(ctx, ms)
	case f.blocked:
		// It is to be refused, whatever there is, but for a claim that was made before.
		if err := f.part(ctx, ms); !ms[0].decided {
			f.note(err)
			ms[0].alone, ms[0].decided = true, true
		}
	default:
		f.serveOne(ctx, ms[0])
	}
}

// serveOne serves m by the statement of a Stock.
func (f *flight) serveOne(ctx context.Context, m *member) {
	own := m.asks(ctx)
	left, err := f.c.single(own)
	m.decided = true
	if err != nil && ctx.Err() != nil && !sqldb.Uncertain(err) {
		m.alone = true // it was the batch whose time was over
		return
	}
	f.singly++
	m.left, m.receipt, m.err = left, own.receipt, err
	f.l.learns(m, left, err)
	if errors.Is(err, ErrSoldOut) {
		f.blocked = f.c.o.strict
	}
}

// part serves ms with one statement, or one transaction, or finds out why not.
func (f *flight) part(ctx context.Context, ms []*member) error {
	switch f.kind {
	case claiming:
		return f.takeClaims(ctx, ms)
	case put:
		return f.puts(ctx, ms)
	}
	return f.takes(ctx, ms)
}

// note keeps the first error.
func (f *flight) note(err error) {
	if f.err == nil {
		f.err = err
	}
}

// doubt answers those of ms who were sent, and of whom nobody knows what became.
func (f *flight) doubt(ms []*member, err error) {
	f.note(err)
	for _, m := range ms {
		if !m.decided {
			m.err, m.decided = err, true
		}
	}
}

// What an error of a part is about.
const (
	aMember   = iota // one of them may be bad, and the others not
	theAnswer        // nobody knows what became of it
	theRow           // the row, or the tables: each would be told the same
	theServer        // the connection, or who else is at the row: each may try it, under its own ctx
)

func blame(ctx context.Context, err error) int {
	switch {
	case sqldb.Uncertain(err):
		return theAnswer
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrBadRow), errors.Is(err, ErrNotMigrated):
		return theRow
	case ctx.Err() != nil || sqldb.Retryable(err):
		return theServer
	}
	switch sqldb.ClassOf(err) {
	case sqldb.NoTable, sqldb.NoColumn, sqldb.NoSchema, sqldb.Denied, sqldb.ReadOnly, sqldb.Login, sqldb.Unsafe:
		return theRow
	case sqldb.ConnLost, sqldb.Exhausted, sqldb.Canceled, sqldb.Aborted:
		return theServer
	}
	return aMember
}

// tryAlone serves m by itself, under its own ctx, after its batch has failed; with it,
// so many of the batch as aloneAtOnce.
func (c *Combined) tryAlone(m *member) (left int64, err error) {
	turns := m.flight.turns
	select {
	case turns <- struct{}{}:
	case <-m.ctx.Done():
		return 0, fmt.Errorf("stock: %s id %v: nothing was changed: its batch has failed, and it was not sent again: %w", c.s.table.Name, m.id, m.ctx.Err())
	}
	defer func() { <-turns }()
	return c.single(m)
}
