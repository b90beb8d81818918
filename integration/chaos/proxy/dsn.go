package proxy

import (
	"fmt"
	"net/url"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/sqldb"
)

// Before starts a proxy in front of the server that a DSN names, and returns the DSN that goes through it: a URL on
// PostgreSQL, go-sql-driver's form on MySQL and MariaDB.
func Before(kind sqldb.Kind, dsn string) (p *Proxy, through string, err error) {
	if kind == sqldb.Postgres {
		u, err := url.Parse(dsn)
		if err != nil {
			return nil, "", fmt.Errorf("proxy: the DSN is no URL")
		}
		if u.Port() == "" {
			return nil, "", fmt.Errorf("proxy: the DSN names no port")
		}
		if p, err = New(u.Host); err != nil {
			return nil, "", err
		}
		u.Host = p.Addr()
		return p, u.String(), nil
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, "", fmt.Errorf("proxy: the DSN is none of go-sql-driver's")
	}
	if cfg.Net != "tcp" {
		return nil, "", fmt.Errorf("proxy: the DSN does not go over tcp")
	}
	if p, err = New(cfg.Addr); err != nil {
		return nil, "", err
	}
	cfg.Addr = p.Addr()
	return p, cfg.FormatDSN(), nil
}
