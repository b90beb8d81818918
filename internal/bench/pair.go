package main

import (
	"context"
	"fmt"

	"github.com/sqlnative/locks/sqldb"
)

// pairByHand is what people write by hand: a table of their own with one row per
// name, and two statements in autocommit, both durable.
type pairByHand struct {
	table, fill      string
	acquire, release string
}

func (p pairByHand) String() string {
	return p.table + ";\n" + p.acquire + ";\n" + p.release
}

var byHand = map[sqldb.Kind]pairByHand{
	sqldb.Postgres: {
		table: `CREATE TABLE locks (name text PRIMARY KEY, owner text, token bigint NOT NULL, expires_at timestamptz NOT NULL)`,
		fill:  `INSERT INTO locks VALUES ('` + benchName + `', NULL, 0, 'epoch')`,
		acquire: `UPDATE locks SET owner = $2, token = token + 1, expires_at = clock_timestamp() + $3::bigint * interval '1 microsecond'
WHERE name = $1 AND expires_at <= clock_timestamp()
RETURNING token`,
		release: `UPDATE locks SET expires_at = 'epoch' WHERE name = $1 AND owner = $2 AND token = $3`,
	},
	sqldb.MySQL:   byHandInnoDB,
	sqldb.MariaDB: byHandInnoDB,
	sqldb.SQLite: {
		table: `CREATE TABLE locks (name TEXT PRIMARY KEY, owner TEXT, token INTEGER NOT NULL, expires_at INTEGER NOT NULL)`,
		fill:  `INSERT INTO locks VALUES ('` + benchName + `', NULL, 0, 0)`,
		acquire: `UPDATE locks SET owner = ?2, token = token + 1, expires_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?3
WHERE name = ?1 AND expires_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
RETURNING token`,
		release: `UPDATE locks SET expires_at = 0 WHERE name = ?1 AND owner = ?2 AND token = ?3`,
	},
}

var byHandInnoDB = pairByHand{
	table: `CREATE TABLE locks (name VARBINARY(255) PRIMARY KEY, owner VARBINARY(64), token BIGINT NOT NULL, expires_at DATETIME(6) NOT NULL)`,
	fill:  `INSERT INTO locks VALUES ('` + benchName + `', NULL, 0, '1970-01-01')`,
	acquire: `UPDATE locks SET owner = ?, token = LAST_INSERT_ID(token + 1), expires_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
WHERE name = ? AND expires_at <= UTC_TIMESTAMP(6)`,
	release: `UPDATE locks SET expires_at = '1970-01-01' WHERE name = ? AND owner = ? AND token = ?`,
}

// uncontendedRatio is what a lock that nobody else wants costs over the two
// statements by hand.
func uncontendedRatio() figure {
	return figure{
		name: "uncontended-ratio",
		unit: "ratio",
		about: "Acquire and Release of one name over the same pair by hand, both durable, through the same handle (a *sqldb.DB) with the same ctx, " +
			"which can be cancelled; the row exists, and nobody else wants it; 1 goroutine.",
		on: []target{
			{sqldb.Postgres, atMost(0.95), byHand[sqldb.Postgres].String()},
			{sqldb.MySQL, atMost(1.15), byHandInnoDB.String()},
			{sqldb.MariaDB, atMost(1.15), byHandInnoDB.String()},
			{sqldb.SQLite, atMost(1.15), byHand[sqldb.SQLite].String()},
		},
		measure: func(ctx context.Context, b *bed) (measurement, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			l, err := b.locker(ctx, b.db)
			if err != nil {
				return measurement{}, err
			}
			p := byHand[b.kind]
			if err := b.exec(ctx, p.table, p.fill); err != nil {
				return measurement{}, err
			}
			return b.timeRatio(ctx, pairOf(l), func(ctx context.Context) error { return p.run(ctx, b.db) })
		},
	}
}

// run acquires and releases by hand.
func (p pairByHand) run(ctx context.Context, db *sqldb.DB) error {
	const owner, ttl = "5ZQW3FVBUVHRPBMSFK2AIXTUMA", 30_000_000 // as long as sqllock's
	var token, freed int64
	if db.Kind().InnoDB() {
		res, err := db.Exec(ctx, p.acquire, []byte(owner), ttl, []byte(benchName))
		if err != nil || res.RowsAffected != 1 {
			return fmt.Errorf("acquire by hand: %d rows: %w", res.RowsAffected, err)
		}
		token = res.LastInsertID
	} else if err := db.QueryRow(ctx, p.acquire, benchName, owner, ttl).Scan(&token); err != nil {
		return err
	}
	var name, own any = benchName, owner
	if db.Kind().InnoDB() {
		name, own = []byte(benchName), []byte(owner)
	}
	res, err := db.Exec(ctx, p.release, name, own, token)
	if freed = res.RowsAffected; err != nil || freed != 1 {
		return fmt.Errorf("release by hand: %d rows: %w", freed, err)
	}
	return nil
}
