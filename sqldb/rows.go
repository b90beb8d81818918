package sqldb

import (
	"database/sql"
	"errors"
	"fmt"
)

// Rows are the rows that a query answers. They are read by one goroutine.
type Rows struct {
	rows   DriverRows
	kind   Kind
	failed func(error) error
	err    error
}

// Next goes to the next row; false at the end, and on an error: see Err.
func (r *Rows) Next() bool {
	if r.err == nil && r.rows.Next() {
		return true
	}
	_ = r.Err() // what ends the transaction has to be seen also where nobody asks
	return false
}

// Scan copies the current row. A destination is a pointer to int64, int, int32,
// uint64, float64, bool, string, []byte, [time.Time] or any, a pointer to such a
// pointer where a NULL may come (it becomes nil), or a [sql.Scanner].
//
// What a column holds means the same whatever the driver: numbers may come as
// text, a NULL into a destination that cannot hold it is an error, times come
// back in UTC. A time is a timestamptz on PostgreSQL; a DATETIME(6) that holds UTC
// on MySQL and MariaDB, whatever parseTime and loc say; on SQLite an INTEGER of
// microseconds since 1970, or text. What a driver hides cannot be brought back:
// go-sql-driver with parseTime and a loc that has summer time moves a UTC time that
// falls into the hour that loc skips; select CAST(.. AS CHAR) where that matters.
// An any takes what the driver gave: on MySQL and MariaDB, text is a []byte.
func (r *Rows) Scan(dest ...any) error {
	values, err := r.rows.Values()
	if err != nil {
		return err
	}
	return scanValues(r.kind, values, dest)
}

// Err is the error that ended the rows, nil if that was their end.
func (r *Rows) Err() error {
	if r.err != nil {
		return r.err
	}
	r.note(r.rows.Err())
	return r.err
}

// Close frees the connection; it is safe to call twice. Rows that were not read to
// their end can bring an error here.
func (r *Rows) Close() error {
	err := r.rows.Close()
	if r.err == nil {
		r.note(err)
		return r.err
	}
	return err
}

// note keeps the first error, and has it end the transaction if it does.
func (r *Rows) note(err error) {
	if err == nil {
		return
	}
	if r.failed != nil {
		err = r.failed(err)
	}
	r.err = err
}

// Row is the first row of an answer.
type Row struct {
	rows *Rows
	err  error
}

// Scan copies the row, as [Rows.Scan] does. It answers [sql.ErrNoRows] if there is
// none.
func (r *Row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	found := r.rows.Next()
	var scanErr error
	if found {
		scanErr = r.rows.Scan(dest...)
	}
	// What comes after the row may be an error of the statement itself: with
	// RETURNING, a row was seen and yet nothing was changed.
	closeErr := r.rows.Close()
	if err := r.rows.Err(); err != nil { // closeErr is this, or follows from it
		return err
	}
	if err := errors.Join(scanErr, closeErr); err != nil {
		return single(err)
	}
	if !found {
		return sql.ErrNoRows
	}
	return nil
}

// single returns the one error of a join, so that its text stays one line.
func single(err error) error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		if errs := j.Unwrap(); len(errs) == 1 {
			return errs[0]
		}
	}
	return err
}

func scanValues(kind Kind, values, dest []any) error {
	if len(values) != len(dest) {
		return fmt.Errorf("sqldb: the row has %d columns, and %d destinations were given", len(values), len(dest))
	}
	for i, d := range dest {
		if err := assign(kind, d, values[i]); err != nil {
			return fmt.Errorf("sqldb: column %d: %w", i+1, err)
		}
	}
	return nil
}
