package schema

import (
	"fmt"

	"github.com/sqlnative/locks/sqldb"
)

// Bounds of what goes into the tables. A longer name, owner or id is refused before
// any SQL; a longer text is cut.
const (
	MaxName   = 255  // bytes: locks, claims, jobs, ids of stock rows
	MaxStock  = 191  // bytes: names of stock tables
	MaxOwner  = 64   // bytes: random identities
	MaxHolder = 1000 // characters: holder, note
	MaxHost   = 255  // characters: host, address
	MaxError  = 4000 // characters
)

// Type is what a column holds, whatever its type is called in a database.
type Type uint8

// The types of columns.
const (
	BigInt Type = iota + 1
	Int
	Bool
	Time
	// Bytes is text that is compared byte by byte.
	Bytes
	// Word is one of a few fixed words.
	Word
	// Text is for people and is never compared.
	Text
)

// Column is what the library needs of a column.
type Column struct {
	Name    string
	Type    Type
	Size    int  // of Bytes and Text
	Null    bool // NULL is allowed
	Default bool // there is a default
}

// Table is what the library needs of a table.
type Table struct {
	Name    string
	Columns []Column
	Key     []string   // columns of the primary key, in order
	Indexes [][]string // columns of further indexes, in order
}

// Tables are the tables of version [Latest], the table of versions included.
func Tables(kind sqldb.Kind) []Table {
	open := []string{"expires_at"} // a partial index
	if kind.InnoDB() {
		open = []string{"state", "expires_at"}
	}
	name := func(n string) Column { return Column{Name: n, Type: Bytes, Size: MaxName} }
	owner := func(n string) Column { return Column{Name: n, Type: Bytes, Size: MaxOwner} }
	stock := Column{Name: "stock", Type: Bytes, Size: MaxStock}
	bigint := func(n string) Column { return Column{Name: n, Type: BigInt} }
	word := func(n string) Column { return Column{Name: n, Type: Word} }
	at := func(n string) Column { return Column{Name: n, Type: Time} }
	text := func(n string, size int) Column { return Column{Name: n, Type: Text, Size: size, Null: true} }
	null := func(c Column) Column { c.Null = true; return c }
	def := func(c Column) Column { c.Default = true; return c }
	number := func(n string) Column { return Column{Name: n, Type: Int} }

	return []Table{
		{Name: VersionTable, Key: []string{"version"}, Columns: []Column{
			bigint("version"), bigint("compatible"), {Name: "name", Type: Text, Size: 255}, at("applied_at"),
		}},
		{Name: "locks", Key: []string{"name", "slot"}, Columns: []Column{
			name("name"), def(number("slot")), null(owner("owner")), def(bigint("token")),
			null(at("acquired_at")), def(at("expires_at")), def(at("hold_until")), null(at("freed_at")), null(at("waited_since")),
			text("holder", MaxHolder), def(bigint("last_ticket")), null(number("slots")),
		}},
		{Name: "tickets", Key: []string{"name", "ticket"}, Columns: []Column{
			name("name"), bigint("ticket"), owner("owner"), at("created_at"), at("expires_at"), text("holder", MaxHolder),
		}},
		{Name: "claims", Key: []string{"stock", "id", "claim"}, Columns: []Column{
			stock, name("id"), name("claim"), owner("owner"), bigint("n"), null(bigint("left_after")), at("created_at"),
		}},
		{Name: "reservations", Key: []string{"id"}, Indexes: [][]string{open}, Columns: []Column{
			owner("id"), owner("owner"), word("state"), at("created_at"), at("expires_at"), null(at("settled_at")), text("note", MaxHolder),
		}},
		{Name: "reservation_lines", Key: []string{"reservation", "stock", "id"}, Indexes: [][]string{{"stock", "id", "held_until"}}, Columns: []Column{
			owner("reservation"), stock, name("id"), bigint("n"), null(at("held_until")),
		}},
		{Name: "jobs", Key: []string{"name"}, Columns: []Column{
			name("name"), def(Column{Name: "disabled", Type: Bool}), null(at("disabled_at")), text("note", MaxHolder),
			null(bigint("period_us")), null(owner("last_run")), def(bigint("last_token")),
			null(at("last_start")), null(at("last_end")), null(word("last_outcome")), at("created_at"),
		}},
		{Name: "job_runs", Key: []string{"id"}, Indexes: [][]string{{"job", "started_at"}}, Columns: []Column{
			owner("id"), name("job"), def(bigint("token")), null(owner("owner")), text("host", MaxHost), text("address", MaxHost),
			null(bigint("pid")), at("started_at"), null(at("lease_until")), null(at("finished_at")),
			word("outcome"), null(number("exit_code")), text("error", MaxError), text("note", MaxHolder),
		}},
	}
}

// SQL is the column's type as the database's catalog spells it, and its
// collation, empty where any is fine.
func (c Column) SQL(kind sqldb.Kind) (typ, collation string) {
	switch kind {
	case sqldb.Postgres:
		switch c.Type {
		case BigInt:
			return "bigint", ""
		case Int:
			return "integer", ""
		case Bool:
			return "boolean", ""
		case Time:
			return "timestamp with time zone", ""
		case Bytes, Word:
			return "text", "C"
		}
		return "text", ""
	case sqldb.SQLite:
		switch c.Type {
		case Bytes, Word, Text:
			return "TEXT", "BINARY"
		}
		return "INTEGER", ""
	}
	switch c.Type {
	case BigInt:
		return "bigint", ""
	case Int:
		return "int", ""
	case Bool:
		return "tinyint", ""
	case Time:
		return "datetime(6)", ""
	case Bytes:
		return fmt.Sprintf("varbinary(%d)", c.Size), ""
	case Word:
		return "varchar(16)", "utf8mb4_bin"
	}
	return fmt.Sprintf("varchar(%d)", c.Size), "utf8mb4_bin"
}
