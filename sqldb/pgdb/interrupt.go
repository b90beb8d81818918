package pgdb

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5/stdlib"
)

// interrupter ends statements of a connection of database/sql. pgx's stdlib has
// the cancel key of the session; another driver's statements carry a comment by
// which a second connection finds the session, and asks the server to cancel. A
// comment costs nothing there: such drivers keep no prepared statements by text.
func interrupter(db *sql.DB, c *sql.Conn) (string, func(ctx context.Context) error) {
	var cancel func(ctx context.Context) error
	_ = c.Raw(func(dc any) error {
		if s, ok := dc.(*stdlib.Conn); ok {
			cancel = s.Conn().PgConn().CancelRequest
		}
		return nil
	})
	if cancel != nil {
		return "", cancel
	}
	mark := fmt.Sprintf("/* sqllock %016x */ ", rand.Uint64())
	return mark, func(ctx context.Context) error {
		// The text is compared from its start: this statement, which holds the mark
		// as an argument, is not its own match.
		_, err := db.ExecContext(ctx, `SELECT pg_cancel_backend(pid) FROM pg_stat_activity
			WHERE state = 'active' AND pid <> pg_backend_pid() AND left(query, length($1::text)) = $1::text`, mark)
		return err
	}
}
