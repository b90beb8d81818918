package migrations

import (
	"context"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3/database"

	"github.com/sqlnative/locks/internal/schema"
)

// store keeps the table of versions for goose. goose's own stores put the table's
// name into SQL unquoted, and goose makes the table outside of the lock, where
// processes collide and then wait a second: here the locker makes it.
type store struct{ r *run }

var _ database.StoreExtender = (*store)(nil)

func (s *store) Tablename() string { return s.r.place.Prefix + schema.VersionTable }

// TableExists keeps goose from making the table.
func (s *store) TableExists(context.Context, database.DBTxConn) (bool, error) { return true, nil }

func (s *store) CreateVersionTable(context.Context, database.DBTxConn) error {
	return errors.New("the table of versions is not made by goose")
}

// Insert records a migration, in its transaction.
func (s *store) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	for _, m := range s.r.o.migrations {
		if m.Version == req.Version {
			_, err := db.ExecContext(ctx, s.r.place.Record(m))
			return err
		}
	}
	return fmt.Errorf("there is no migration %d", req.Version)
}

// Delete records that a migration was undone, in its transaction. With the first
// one the table itself goes.
func (s *store) Delete(ctx context.Context, db database.DBTxConn, version int64) error {
	if _, err := db.ExecContext(ctx, s.r.place.Forget(version)); err != nil {
		return err
	}
	state, err := s.read(ctx, db)
	if err != nil || len(state.Applied) > 0 {
		return err
	}
	return s.drop(ctx, db)
}

func (s *store) drop(ctx context.Context, db database.DBTxConn) error {
	if err := catalogOn(s.r.place, db).mayDrop(ctx, schema.VersionTable); err != nil {
		return err
	}
	for _, text := range schema.Bookkeeping(s.r.place.Kind).Down {
		if _, err := db.ExecContext(ctx, s.r.place.Render(text)); err != nil {
			return err
		}
	}
	return nil
}

// read is schema.Read on goose's connection, without the times, whose type
// depends on the DSN here.
func (s *store) read(ctx context.Context, db database.DBTxConn) (state schema.State, err error) {
	rows, err := db.QueryContext(ctx, "SELECT version, compatible FROM "+s.r.place.Table(schema.VersionTable)+" ORDER BY version")
	if err != nil {
		return state, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var a schema.Applied
		if err := rows.Scan(&a.Version, &a.Compatible); err != nil {
			return state, err
		}
		state.Applied = append(state.Applied, a)
	}
	return state, rows.Err()
}

// ListMigrations lists what has been applied, the last one first, and version 0
// behind all, which goose wants to see. goose asks twice: before it has the lock,
// to see if there is anything to do, and again when it has it.
func (s *store) ListMigrations(ctx context.Context, db database.DBTxConn) ([]*database.ListMigrationsResult, error) {
	state, err := s.read(ctx, db)
	missing := schema.Missing(err)
	if err != nil && !missing {
		return nil, s.r.place.ReadError(err)
	}
	var list []*database.ListMigrationsResult
	for i := len(state.Applied) - 1; i >= 0; i-- {
		a := state.Applied[i]
		if tooNew := a.Compatible; tooNew > s.r.o.latest() || s.r.down && a.Version > s.r.o.latest() {
			return nil, fmt.Errorf("%w: they have version %d, this program knows those up to %d", ErrTooNew, a.Version, s.r.o.latest())
		}
		list = append(list, &database.ListMigrationsResult{Version: a.Version, IsApplied: true})
	}
	if s.r.down && !missing && len(list) == 0 {
		// A Down on MySQL that died between its last two statements.
		if err := s.drop(ctx, db); err != nil {
			return nil, err
		}
	}
	return append(list, &database.ListMigrationsResult{Version: 0, IsApplied: true}), nil
}

// GetLatestVersion is what goose asks for at the end.
func (s *store) GetLatestVersion(ctx context.Context, db database.DBTxConn) (int64, error) {
	state, err := s.read(ctx, db)
	if schema.Missing(err) {
		return 0, nil
	}
	return state.Version(), err
}

// GetMigration is part of the interface; what is used of goose does not call it.
func (s *store) GetMigration(context.Context, database.DBTxConn, int64) (*database.GetMigrationResult, error) {
	return nil, database.ErrNotImplemented
}
