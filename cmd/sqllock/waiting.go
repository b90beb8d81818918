package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// waiterJSON is who waits in the queue of a lock.
type waiterJSON struct {
	Name   string     `json:"name"`
	Ticket int64      `json:"ticket"`
	Since  time.Time  `json:"since"`
	Holder holderJSON `json:"holder"`
}

// clocks are the database's own: the time, and as the columns of the tables have it.
var clocks = map[sqldb.Kind]struct{ now, column string }{
	sqldb.Postgres: {"clock_timestamp()", "clock_timestamp()"},
	sqldb.MySQL:    {"UTC_TIMESTAMP(6)", "UTC_TIMESTAMP(6)"},
	sqldb.MariaDB:  {"UTC_TIMESTAMP(6)", "UTC_TIMESTAMP(6)"},
	sqldb.SQLite:   {"CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000", "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000"},
}

// now is the time by the database's clock.
func (s *session) now(ctx context.Context) (t time.Time, err error) {
	err = s.db.QueryRow(ctx, "SELECT "+clocks[s.db.Kind()].now).Scan(&t)
	return t.UTC(), err
}

// waiting reads the tickets that have not expired. (A waiter that has died leaves one
// that has.)
func (s *session) waiting(ctx context.Context) ([]waiterJSON, error) {
	rows, err := s.db.Query(ctx, "SELECT name, ticket, created_at, holder FROM "+s.db.Table("tickets")+
		" WHERE expires_at > "+clocks[s.db.Kind()].column+" ORDER BY name, ticket")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	all := []waiterJSON{}
	for rows.Next() {
		var w waiterJSON
		var holder *string
		if err := rows.Scan(&w.Name, &w.Ticket, &w.Since, &holder); err != nil {
			return nil, err
		}
		var h lock.Holder
		if holder != nil {
			_ = json.Unmarshal([]byte(*holder), &h) // for people
		}
		w.Holder, w.Since = holderOf(h), w.Since.UTC()
		all = append(all, w)
	}
	return all, rows.Err()
}
