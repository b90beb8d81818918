package locktable_test

import (
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/sqldb"
)

// settings are what a DSN of MySQL and MariaDB may say, and what must not matter.
var settings = map[string]func(*mysql.Config){
	"clientFoundRows":   func(c *mysql.Config) { c.ClientFoundRows = true },
	"interpolateParams": func(c *mysql.Config) { c.InterpolateParams = true },
	"both":              func(c *mysql.Config) { c.ClientFoundRows, c.InterpolateParams = true, true },
	// Needs a privilege that root has. The servers refuse READ COMMITTED writes then.
	"binlog_format=STATEMENT": func(c *mysql.Config) { c.Params = map[string]string{"binlog_format": "'STATEMENT'"} },
}

func TestSettingsOfMySQL(t *testing.T) {
	for _, kind := range []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB} {
		for name, edit := range settings {
			t.Run(kind.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				fresh := migrated(t, kind)
				cfg, err := mysql.ParseDSN(fresh.DSN)
				if err != nil {
					t.Fatal(err)
				}
				edit(cfg)
				fl := flavour{kind.String(), kind, "mysql"}
				pool, another := openSQL(t, "mysql", cfg.FormatDSN(), 8), openSQL(t, "mysql", cfg.FormatDSN(), 8)
				if err := pool.PingContext(t.Context()); err != nil {
					t.Skipf("the server does not let this session have %s: %v", name, err)
				}
				serves(t, fl.handle(t, pool), fl.handle(t, another))
			})
		}
	}
}
