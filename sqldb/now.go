package sqldb

import (
	"context"
	"time"
)

// Now is the time by the database's clock, in UTC: that by which leases end and jobs
// are due. On SQLite it is this machine's clock, in milliseconds.
func (db *DB) Now(ctx context.Context) (t time.Time, err error) {
	query := "SELECT UTC_TIMESTAMP(6)"
	switch db.kind {
	case Postgres:
		query = "SELECT clock_timestamp()"
	case SQLite:
		query = "SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
	case MySQL, MariaDB:
	}
	err = db.QueryRow(ctx, query).Scan(&t)
	return t.UTC(), err
}
