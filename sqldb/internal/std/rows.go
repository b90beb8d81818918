package std

import "database/sql"

// rowset is a [sqldb.DriverRows] on [*sql.Rows].
type rowset struct {
	rows   *sql.Rows
	values []any
	ptrs   []any
}

func (r *rowset) Next() bool { return r.rows.Next() }

// Values returns the row as the driver gave it, in the few types that
// [sqldb.DriverRows] names: go-sql-driver also gives float32 and uint64.
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
		return nil, err
	}
	for i, v := range r.values {
		if f, ok := v.(float32); ok {
			r.values[i] = float64(f)
		}
	}
	return r.values, nil
}

func (r *rowset) Err() error   { return r.rows.Err() }
func (r *rowset) Close() error { return r.rows.Close() }
