// Package handle tests what sqldb makes of the pools and transactions that
// programs have: pgx, database/sql with four drivers, GORM, bun and sqlx.
package handle
