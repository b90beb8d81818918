package dbtest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// Galera opens a pool on the server, MySQL or MariaDB, that answers like a node of a
// Galera cluster when it is asked for wsrep_on. It is closed with the test.
func (db *DB) Galera(t testing.TB) *sql.DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(db.DSN)
	if err != nil {
		t.Fatal(scrub(db.DSN, err))
	}
	cfg.ParseTime = true // goose wants it
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(scrub(db.DSN, err))
	}
	return track(t, sql.OpenDB(galera{connector}))
}

type galera struct{ driver.Connector }

func (g galera) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := g.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	all, ok := c.(mysqlConn)
	if !ok {
		return nil, errors.Join(errors.New("dbtest: the driver's connection lacks methods"), c.Close())
	}
	return galeraConn{all}, nil
}

// mysqlConn is what go-sql-driver's connections can do.
type mysqlConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

type galeraConn struct{ mysqlConn }

func (c galeraConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if strings.Contains(query, "'wsrep_on'") {
		return &variables{}, nil
	}
	return c.mysqlConn.QueryContext(ctx, query, args)
}

// variables says that wsrep_on is ON.
type variables struct{ read bool }

func (*variables) Columns() []string { return []string{"Variable_name", "Value"} }
func (*variables) Close() error      { return nil }

func (v *variables) Next(dest []driver.Value) error {
	if v.read {
		return io.EOF
	}
	v.read = true
	dest[0], dest[1] = []byte("wsrep_on"), []byte("ON")
	return nil
}
