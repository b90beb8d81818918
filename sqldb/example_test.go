package sqldb_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
)

// A transaction that is repeated when the server has rolled it back for a reason
// that another try may not meet. It may be begun by anything: InTx here,
// pgx.BeginFunc, bun's RunInTx, gorm's Transaction.
func ExampleRetry() {
	ctx := context.Background()
	pool, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	pool.SetMaxOpenConns(1)
	db, err := sqlitedb.New(ctx, pool)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec(ctx, "CREATE TABLE account (id INT, cents INT)"); err != nil {
		log.Fatal(err)
	}
	err = sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) error {
		return db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO account VALUES (?, ?)", 7, 1250)
			return err
		})
	})
	if sqldb.Uncertain(err) {
		fmt.Println("COMMIT was sent, and no answer came: look before you try again")
	}
	var cents int64
	fmt.Println(err, db.QueryRow(ctx, "SELECT cents FROM account WHERE id = 7").Scan(&cents), cents)
	// Output: <nil> <nil> 1250
}
