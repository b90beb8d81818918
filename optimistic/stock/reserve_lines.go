package stock

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sqlnative/locks/sqldb"
)

// holdLine is a line of a reservation of this stock.
type holdLine struct{ reservation, key string }

// errOtherStock: the reservation is one of another stock.
var errOtherStock = errors.New("stock: the reservation is one of another stock")

// linesOf reads the lines of reservations that this transaction has locked, open or
// not.
func (s *Stock) linesOf(ctx context.Context, tx *sqldb.Tx, reservations []string) (lines []holdLine, err error) {
	read := func(query string) error {
		lines = nil
		return each(ctx, tx, query, asArgs(reservations), func(rows *sqldb.Rows) error {
			var l holdLine
			var ours int
			err := rows.Scan(&l.reservation, &l.key, &ours)
			lines = append(lines, l)
			if err == nil && ours == 0 {
				err = errOtherStock
			}
			return err
		})
	}
	if err := read(s.holds.sql.linesOf(len(reservations))); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, l := range lines {
		seen[l.reservation] = true
	}
	// Of a reservation the snapshot shows all lines or none: they were committed
	// together, and are never deleted.
	if len(seen) < len(reservations) && s.holds.sql.linesNow != nil {
		err = read(s.holds.sql.linesNow(len(reservations)))
	}
	return lines, err
}

// giveBack puts back what the open ones of lines hold, summed for each row, and closes
// them; given says that there were any. The reservations are locked. Whatever error comes back, either nothing of it
// stands, or the transaction can't commit any more.
func (s *Stock) giveBack(ctx context.Context, tx *sqldb.Tx, lines []holdLine) (given bool, err error) {
	var keys []string
	sums := map[string]int64{}
	var open []holdLine
	for part := range slices.Chunk(lines, atOnce) {
		err := each(ctx, tx, s.holds.sql.open(len(part)), s.lineArgs(part), func(rows *sqldb.Rows) error {
			var l holdLine
			var n int64
			if err := rows.Scan(&l.reservation, &l.key, &n); err != nil {
				return err
			}
			if _, ok := sums[l.key]; !ok {
				keys = append(keys, l.key)
			}
			sum, err := sumOf(sums[l.key], n)
			sums[l.key] = sum
			open = append(open, l)
			return err
		})
		if err != nil {
			return false, err
		}
	}
	if len(open) == 0 {
		return false, nil
	}
	if err := s.putKeys(ctx, tx, keys, sums); err != nil {
		return false, err
	}
	if err := s.closeLines(ctx, tx, open); err != nil {
		return false, spoil(tx, err)
	}
	return true, nil
}

func sumOf(a, b int64) (int64, error) {
	if c := a + b; c >= a {
		return c, nil
	}
	return 0, fmt.Errorf("%w: what has expired of one row is more than a 64-bit integer holds", ErrOverflow)
}

// putKeys puts sums into the rows with these keys. A row that is gone gets nothing:
// what it had went with it.
func (s *Stock) putKeys(ctx context.Context, tx *sqldb.Tx, keys []string, sums map[string]int64) error {
	lines := make([]Line, len(keys))
	for i, k := range keys {
		lines[i] = Line{ID: rowID(k), N: sums[k]}
	}
	_, err := s.putLines(ctx, tx, lines)
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	lines = lines[:0]
	for _, k := range keys {
		id, err := s.rowWith(ctx, tx, k)
		switch {
		case errors.Is(err, ErrNotFound):
			continue
		case err != nil:
			return err
		}
		lines = append(lines, Line{ID: id, N: sums[k]})
	}
	if len(lines) == 0 {
		return nil
	}
	_, err = s.putLines(ctx, tx, lines)
	return err
}

// rowWith is the id with which the row with that key is found. A text finds it, but
// for a BLOB on SQLite, whose key is \x and hex.
func (s *Stock) rowWith(ctx context.Context, tx *sqldb.Tx, key string) (any, error) {
	id := rowID(key)
	_, err := s.look(ctx, tx, s.sql.lookTx, id, 0, nil)
	if blob, ok := strings.CutPrefix(key, `\x`); ok && errors.Is(err, ErrNotFound) && s.db.Kind() == sqldb.SQLite {
		b, herr := hex.DecodeString(blob)
		if herr != nil {
			return nil, err
		}
		id = b
		_, err = s.look(ctx, tx, s.sql.lookTx, id, 0, nil)
	}
	return id, err
}

// closeLines closes lines that are open.
func (s *Stock) closeLines(ctx context.Context, tx *sqldb.Tx, lines []holdLine) error {
	for part := range slices.Chunk(lines, atOnce) {
		res, err := tx.Exec(ctx, s.holds.sql.close(len(part)), s.lineArgs(part)...)
		if err != nil {
			return err
		}
		if res.RowsAffected != int64(len(part)) {
			return fmt.Errorf("%w: %s: of %d lines of reservations that were open %d were closed: somebody has changed them by hand", ErrBadRow, s.table.Name, len(part), res.RowsAffected)
		}
	}
	return nil
}

// keyArg is a key as an argument. MySQL and MariaDB would refuse a text that is no
// UTF-8, though the column is bytes.
func (s *Stock) keyArg(key string) any {
	if s.db.Kind().InnoDB() {
		return []byte(key)
	}
	return key
}

// rowID is a key as the id of the row.
func rowID(key string) any {
	if utf8.ValidString(key) {
		return key
	}
	return []byte(key)
}

func (s *Stock) lineArgs(lines []holdLine) []any {
	args := make([]any, 0, 2*len(lines))
	for _, l := range lines {
		args = append(args, l.reservation, s.keyArg(l.key))
	}
	return args
}

func asArgs(texts []string) []any {
	args := make([]any, len(texts))
	for i, t := range texts {
		args[i] = t
	}
	return args
}

// each runs f on every row of a query.
func each(ctx context.Context, h sqldb.Handle, query string, args []any, f func(rows *sqldb.Rows) error) error {
	rows, err := h.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// texts reads one column of texts.
func texts(ctx context.Context, h sqldb.Handle, query string, args []any) (all []string, err error) {
	err = each(ctx, h, query, args, func(rows *sqldb.Rows) error {
		var text string
		err := rows.Scan(&text)
		all = append(all, text)
		return err
	})
	return all, err
}
