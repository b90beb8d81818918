package std

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/sqlnative/locks/sqldb"
)

// contextTx is anything with database/sql's three context methods, Commit and
// Rollback.
type contextTx interface {
	runner
	ender
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

var errNoTx = errors.New("it is no transaction: it has no Commit")

// Tx makes a [sqldb.DriverTx] of a caller's transaction.
func (d *Driver) Tx(x any) (sqldb.DriverTx, error) {
	v := reflect.ValueOf(x)
	if x == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("%s: the transaction is nil", d.o.Name)
	}
	if d.o.Native != nil {
		if tx, ok := d.o.Native(x); ok {
			return tx, nil
		}
	}
	if tx, ok := embedded(v, maxDepth); ok {
		if tx == nil {
			return nil, fmt.Errorf("%s: the transaction is nil", d.o.Name)
		}
		q := d.querier()
		q.r = tx
		return &transaction{querier: q, tx: tx, rolledBack: d.o.RolledBack}, nil
	}
	if tx, ok := x.(contextTx); ok {
		return &transaction{querier: querier{r: tx, vague: d.o.VagueBadConn}, tx: tx, rolledBack: d.o.RolledBack}, nil
	}
	if _, ok := x.(interface{ Commit(context.Context) error }); ok {
		return nil, fmt.Errorf("%s: it is a transaction of another database's driver", d.o.Name)
	}
	hint := "begin one, and give that: in a pool every statement is a transaction of its own, and nothing stays locked behind it"
	if v.Type().String() == "*gorm.DB" {
		hint = "give its tx.Statement.ConnPool, inside of Transaction or after Begin"
	}
	return nil, fmt.Errorf("%s: %w; %s", d.o.Name, errNoTx, hint)
}

// embedded finds the *sql.Tx that x is, or that x embeds, as sqlx.Tx and bun.Tx
// do. bun's own ExecContext knows only its '?' and drops the arguments of a
// statement with $1, and both may rewrite the text: our statements are meant for
// the server as they are. The *sql.Tx that is found may be nil.
func embedded(v reflect.Value, depth int) (tx *sql.Tx, ok bool) {
	if v.Type() == reflect.TypeFor[*sql.Tx]() {
		tx, _ = v.Interface().(*sql.Tx)
		return tx, true
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem() // of nil: invalid, and of no kind
	}
	if v.Kind() != reflect.Struct || depth == 0 {
		return nil, false
	}
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Anonymous && f.IsExported() {
			if tx, ok := embedded(v.Field(i), depth-1); ok {
				return tx, true
			}
		}
	}
	return nil, false
}

// maxDepth is how deep a wrapper may have embedded a *sql.Tx.
const maxDepth = 4
