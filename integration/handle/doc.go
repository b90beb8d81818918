// Package handle tests what sqldb makes of the pools and transactions that
// programs have: pgx, database/sql with six drivers (mattn's in a package of its own),
// GORM, bun and sqlx.
package handle
