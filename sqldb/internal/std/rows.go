package std

import (
	"database/sql"
	"math"
)

// rowset is a [sqldb.DriverRows] on [*sql.Rows].
type rowset struct {
	querier
	rows   *sql.Rows
	values []any
	ptrs   []any
}

func (r *rowset) Next() bool { return r.rows.Next() }

// Values returns the row as the driver gave it, in the few types that
// [sqldb.DriverRows] names: go-sql-driver also gives float32 and uint64, which
// stays what it is where no int64 can hold it.
func (r *rowset) Values() ([]any, error) {
	if r.ptrs == nil {
		cols, err := r.rows.Columns()
		if err != nil {
			return nil, err
		}
		r.ptrs = make([]any, len(cols))
	}
	r.values = make([]any, len(r.ptrs))
	for i := range r.values {
		r.ptrs[i] = &r.values[i]
	}
	if err := r.rows.Scan(r.ptrs...); err != nil {
		return nil, r.failed(err)
	}
	for i, v := range r.values {
		switch n := v.(type) {
		case float32:
			r.values[i] = float64(n)
		case uint64:
			if n <= math.MaxInt64 {
				r.values[i] = int64(n)
			}
		case []byte:
			if n == nil {
				r.values[i] = []byte{} // no NULL: modernc's empty BLOB
			}
		}
	}
	return r.values, nil
}

func (r *rowset) Err() error   { return r.failed(r.rows.Err()) }
func (r *rowset) Close() error { return r.failed(r.rows.Close()) }
