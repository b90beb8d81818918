package optimistic_test

import (
	"errors"
	"testing"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic"
	"github.com/sqlnative/locks/sqldb"
)

func TestCheck(t *testing.T) {
	broken := errors.New("broken")
	if err := optimistic.Check(1, nil); err != nil {
		t.Error(err)
	}
	err := optimistic.Check(0, nil)
	conflict(t, err, optimistic.Unspecified)
	if !sqldb.Retryable(err) {
		t.Error("a conflict of which no more is known can be tried again")
	}
	for _, n := range []int64{0, 1, 2} {
		if err := optimistic.Check(n, broken); err != broken { //nolint:errorlint // the very error
			t.Error(err)
		}
	}
	for _, n := range []int64{2, -1} {
		if err := optimistic.Check(n, nil); !errors.Is(err, optimistic.ErrBadRow) || errors.Is(err, optimistic.ErrConflict) || sqldb.Retryable(err) {
			t.Errorf("%d rows: %v", n, err)
		}
	}
}

// As generated code and database/sql answer.
func TestCheckSQL(t *testing.T) {
	pools(t, func(t *testing.T, db *dbtest.DB) {
		article(t, db)
		execrows := func() (int64, error) { // sqlc's :execrows
			res, err := db.SQL.ExecContext(t.Context(), "UPDATE article SET title = 'new', version = version + 1 WHERE id = 7 AND version = 0")
			if err != nil {
				return 0, err
			}
			return res.RowsAffected()
		}
		if err := optimistic.Check(execrows()); err != nil {
			t.Error(err)
		}
		conflict(t, optimistic.Check(execrows()), optimistic.Unspecified)
	})
}

func TestConflictString(t *testing.T) {
	for c, want := range map[optimistic.Conflict]string{
		optimistic.Unspecified: "unspecified", optimistic.Stale: "stale", optimistic.Gone: "gone", optimistic.Condition: "condition",
		99: "optimistic.Conflict(99)",
	} {
		if c.String() != want {
			t.Errorf("%q, want %q", c, want)
		}
	}
}
