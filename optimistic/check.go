package optimistic

import "fmt"

// Check is for statements that others run: SQL of one's own, sqlc's :execrows. It
// takes what they answer, as it is:
//
//	err := optimistic.Check(queries.SetTitle(ctx, db.SetTitleParams{...}))
//	err := optimistic.Check(result.RowsAffected())
//	err := optimistic.Check(tag.RowsAffected(), err)
//
// One row is nil, no row a [*ConflictError] whose Kind is [Unspecified], more than
// one [ErrBadRow] (the key is not unique: roll back), and err comes back as it is.
//
// The statement has to compare the version and to raise it. MySQL and MariaDB count
// the rows that were changed, and not those that were found, unless the DSN says
// clientFoundRows: a statement that changes nothing would look like a conflict on one
// of two pools.
func Check(rows int64, err error) error {
	switch {
	case err != nil:
		return err
	case rows == 1:
		return nil
	case rows == 0:
		return &ConflictError{}
	}
	return fmt.Errorf("%w: %d rows were changed, not one: the key is not unique; roll back", ErrBadRow, rows)
}
