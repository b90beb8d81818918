// Package schema is the tables of sqllock: their SQL, as numbered migrations in
// one folder per database, and what the library expects to find of them.
//
// The SQL stands in sql/postgres, sql/sqlite and sql/mysql; MariaDB reads
// sql/mysql too, since one text serves both. A file is one migration, one table:
//
//	-- compatible: 1
//	-- Why it is as it is.
//	-- +up
//	CREATE TABLE IF NOT EXISTS ${table.locks} (
//	...
//	);
//	-- +down
//	DROP TABLE IF EXISTS ${table.locks};
//
// A statement ends with a semicolon at the end of a line. ${table.x} becomes the
// name of a table with schema and prefix, quoted; ${name.x} the same without the
// schema. Version numbers count from 1 without gaps and mean the same on every
// database. 00000 is the table that records them.
//
// # What a migration may do
//
// Programs of two releases run side by side while a release is rolled out: first
// "sqllock-migrate up", then the new programs, one after the other, beside the old
// ones. So a migration must leave what the older program does valid, or say that it
// does not:
//
//   - It may add a table, an index that is not unique, or a column that is
//     nullable or has a default. It may widen a column. Such a migration repeats
//     the compatible number of the one before it.
//   - Everything else (dropping, renaming, narrowing, a new constraint, a column
//     whose meaning changes) ends compatibility: it declares as compatible the
//     version that programs must have been made for at least, its own number at
//     most. Before that, a release has to exist that works on both sides.
//   - A migration that was released is never edited. What was wrong is put right
//     by the next one.
//   - Before a step, and before a DROP, package migrations compares a table that is
//     there with what [Tables] says of it. So the first migration that changes a table
//     of an earlier one has to say in Tables since which version a column or an index
//     is there.
//   - On MySQL and MariaDB, DDL commits by itself, so a migration can fail between
//     two statements and is run again from its first: every statement must be one
//     that can be repeated. IF [NOT] EXISTS says so where the server has it. Where
//     it has not (MySQL's ADD COLUMN, ADD INDEX), a migration is one ALTER TABLE,
//     and package migrations takes "is there already" (1060, 1061) and "is not
//     there" (1091) for done.
//
// A program knows the version it was made for, [Latest]. It works with a database
// that has this version or a later one, as long as no later migration has declared
// a compatible number above Latest: [State.Supported].
package schema
