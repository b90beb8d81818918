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
	if tx := embedded(v); tx != nil {
		return &transaction{querier: querier{r: tx, inline: d.o.Inline}, tx: tx}, nil
	}
	if tx, ok := x.(contextTx); ok {
		return &transaction{querier: querier{r: tx}, tx: tx}, nil
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
// the server as they are.
func embedded(v reflect.Value) *sql.Tx {
	if tx, ok := v.Interface().(*sql.Tx); ok {
		return tx
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return nil
	}
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Anonymous && f.IsExported() && f.Type == reflect.TypeFor[*sql.Tx]() {
			tx, _ := v.Field(i).Interface().(*sql.Tx)
			return tx
		}
	}
	return nil
}
