package order

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"
	"go.uber.org/goleak"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
)

func TestMain(m *testing.M) {
	// puzpuzpuz/xsync and GORM's cache of statements run a janitor for each cache.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

type place func(ctx context.Context, who string, lines []stock.Line) ([]int64, error)

// conforms places orders: one that is had, one that is short, and one whose rows fail
// after its goods were taken.
func conforms(t *testing.T, db *dbtest.DB, make func(handle *sqldb.DB, goods *stock.Stock) place) {
	t.Helper()
	ctx := t.Context()
	db.MustExec(t, "CREATE TABLE t_goods (id BIGINT NOT NULL PRIMARY KEY, left_count INT NOT NULL, version BIGINT NOT NULL DEFAULT 0)",
		"INSERT INTO t_goods (id, left_count) VALUES (1, 10), (2, 10), (3, 10)",
		"CREATE TABLE t_order (id VARCHAR(40) NOT NULL PRIMARY KEY, who VARCHAR(20) NOT NULL UNIQUE)",
		"CREATE TABLE t_order_line (order_id VARCHAR(40) NOT NULL, goods_id BIGINT NOT NULL, n BIGINT NOT NULL, PRIMARY KEY (order_id, goods_id))")
	handle := db.DB
	if db.Kind() == sqldb.Postgres {
		var err error
		if handle, err = pgdb.SQL(ctx, db.SQL); err != nil {
			t.Fatal(err)
		}
	}
	goods, err := stock.New(handle, stock.Table{Name: "t_goods", ID: "id", Count: "left_count", Version: "version"})
	if err != nil {
		t.Fatal(err)
	}
	order := make(handle, goods)
	line := func(id, n int64) stock.Line { return stock.Line{ID: id, N: n} }
	if lefts, err := order(ctx, "Ann", []stock.Line{line(3, 1), line(1, 2)}); err != nil || !slices.Equal(lefts, []int64{9, 8}) {
		t.Errorf("%v, %v", lefts, err)
	}
	var short *stock.ShortError
	if _, err := order(ctx, "Bob", []stock.Line{line(1, 1), line(2, 50), line(3, 50)}); !errors.As(err, &short) || len(short.Lines) != 2 {
		t.Errorf("%v", err)
	}
	if _, err := order(ctx, "Ann", []stock.Line{line(1, 1)}); err == nil || errors.Is(err, stock.ErrSoldOut) {
		t.Errorf("an order that is there: %v", err)
	}
	var left, orders, lines int
	err = db.SQL.QueryRowContext(ctx, "SELECT (SELECT SUM(left_count) FROM t_goods), (SELECT COUNT(*) FROM t_order), (SELECT COUNT(*) FROM t_order_line)").Scan(&left, &orders, &lines)
	if got := fmt.Sprint(left, orders, lines); err != nil || got != "27 1 2" {
		t.Errorf("left, orders, lines: %s, %v", got, err)
	}
}

func TestGORM(t *testing.T) {
	// GORM's SQLite brings a driver under a name that is taken already.
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		var dialect gorm.Dialector = mysql.New(mysql.Config{Conn: db.SQL})
		if db.Kind() == sqldb.Postgres {
			dialect = postgres.New(postgres.Config{Conn: db.SQL})
		}
		g, err := gorm.Open(dialect, &gorm.Config{Logger: logger.Discard})
		if err != nil {
			t.Fatal(err)
		}
		conforms(t, db, func(handle *sqldb.DB, goods *stock.Stock) place {
			return func(ctx context.Context, who string, lines []stock.Line) ([]int64, error) {
				return PlaceGORM(ctx, g, handle, goods, who, lines)
			}
		})
	})
}

func TestBun(t *testing.T) {
	dialects := map[sqldb.Kind]func() schema.Dialect{
		sqldb.Postgres: func() schema.Dialect { return pgdialect.New() },
		sqldb.MySQL:    func() schema.Dialect { return mysqldialect.New() },
		sqldb.MariaDB:  func() schema.Dialect { return mysqldialect.New() },
		sqldb.SQLite:   func() schema.Dialect { return sqlitedialect.New() },
	}
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		b := bun.NewDB(db.SQL, dialects[db.Kind()]())
		conforms(t, db, func(handle *sqldb.DB, goods *stock.Stock) place {
			return func(ctx context.Context, who string, lines []stock.Line) ([]int64, error) {
				return PlaceBun(ctx, b, handle, goods, who, lines)
			}
		})
	})
}
