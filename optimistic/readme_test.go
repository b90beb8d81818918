package optimistic_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"

	"github.com/sqlnative/locks/optimistic"
	"github.com/sqlnative/locks/sqldb"
)

// What the README shows, as it is.
func Example_readme() {
	ctx := context.Background()
	pool, db := memory(articleSchema)
	defer pool.Close()
	title, version := "Locks", int64(0)

	// README
	articles, err := optimistic.New(db, optimistic.Table{Name: "article", Key: []string{"id"}, Version: "version"})
	if err != nil {
		log.Fatal(err)
	}
	// version is what was read together with the row, and went out with the form.
	version, err = articles.Update(ctx, db, optimistic.Key(7), version, optimistic.Set{"title": title}, optimistic.If("state", 1))
	var conflict *optimistic.ConflictError
	if errors.As(err, &conflict) {
		fmt.Println(conflict.Kind, err) // stale, gone or condition; nothing was changed, and version is as it was
	}
	// Where no human has to be asked: read and update, again until it is through.
	err = optimistic.Do(ctx, db, sqldb.Policy{}, func(ctx context.Context, tx *sqldb.Tx) error {
		var state, version int64
		if err := tx.QueryRow(ctx, "SELECT state, version FROM article WHERE id = 7").Scan(&state, &version); err != nil {
			return err
		}
		_, err := articles.Update(ctx, tx, optimistic.Key(7), version, optimistic.Set{"state": state + 1})
		return err
	})
	// README
	fmt.Println(version, err)
	// Output: 1 <nil>
}

func TestReadme(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	code := strings.Split(read("readme_test.go"), "\t// README\n")[1]
	code = strings.ReplaceAll("\n"+code, "\n\t", "\n")
	if !strings.Contains(read("../README.md"), "```go"+code+"```") {
		t.Errorf("README.md does not hold\n%s", code)
	}
}
