package stock

import (
	"strconv"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// claimStatements are what a Stock says to its database about claims. The SQL stands
// in claims_postgres.go, claims_mysql.go and claims_sqlite.go.
//
// The lock order is: claims, then rows of the stock. A claim is inserted first, and
// whoever else inserts it waits for that transaction; so its receipt is written by a
// second statement, when the row has told what is left.
type claimStatements struct {
	// insert makes the claim without its receipt, and answers when, or no row if the
	// claim is there. On MySQL and MariaDB it answers nothing, and a claim that is there
	// is a duplicate key; it inserts nothing if there is no gate. gates makes the gates,
	// countGates counts them, hasGate counts the claim's: see mysqlClaims. Empty elsewhere.
	insert, hasGate   claimStatement
	gates, countGates string
	// find reads a claim: owner, n, what was left, when. findTx reads it as it is, in
	// a transaction whose snapshot may be older.
	find, findTx claimStatement
	// look reads the row: its own id as claims have it, the count, what is wrong with
	// it. lookTx and lookCurrent do so in a transaction, as those of statements; on
	// MySQL and MariaDB lookTx locks the row, and tells also when the claim was made.
	look, lookTx, lookCurrent claimStatement
	// take takes from the row. On PostgreSQL it does so if the row's own id is the
	// claim's, writes the receipt into the claim, and answers what is left. Elsewhere
	// the row was looked at before, and is locked: on SQLite note writes the
	// receipt first, on MySQL and MariaDB take changes both.
	take, note claimStatement
	// drop takes a claim back: in the transaction that has made it.
	drop claimStatement

	// page reads the keys of claims, in their order, and whether they are old: those
	// behind a key, at most so many. Arguments: microseconds, id, claim, how many; on
	// MySQL and MariaDB, id comes twice.
	page string
	// prune deletes old claims but for those that somebody is at. Arguments: id and
	// claim of the first and of the last, and microseconds; on MySQL and MariaDB, id and
	// claim of every one of so many.
	prune func(claims int) string
}

// claimStatement is a statement with the order of its arguments, one letter per
// placeholder: see [claim.arg].
type claimStatement struct{ query, order string }

// claim is what a statement about a claim is told.
type claim struct {
	id    any    // of the row, as it was given
	key   string // the row's own id, as text
	claim string
	owner string
	n     int64
	left  int64

	passes bool // it waits at no gate: see insertClaim
}

// arg is the argument behind a letter.
func (c claim) arg(letter byte) any {
	switch letter {
	case 'i':
		return c.id
	case 'k':
		return c.key
	case 'c':
		return c.claim
	case 'o':
		return c.owner
	case 'n':
		return c.n
	case 'g':
		return c.gate()
	}
	return c.left // 'l'
}

// args makes the arguments. The columns of claims are binary on MySQL and MariaDB,
// and get bytes.
func (st claimStatement) args(kind sqldb.Kind, c claim) []any {
	args := make([]any, len(st.order))
	for i := range args {
		args[i] = c.arg(st.order[i])
		if st.order[i] != 'i' {
			args[i] = asText(kind, args[i])
		}
	}
	return args
}

// asText makes bytes of a text where claims have a binary column for it.
func asText(kind sqldb.Kind, v any) any {
	if s, ok := v.(string); ok && kind.InnoDB() {
		return []byte(s)
	}
	return v
}

// claimCompiler makes statements of texts with names ($claims) and placeholders
// ({k}, by their letter).
type claimCompiler struct {
	names    *strings.Replacer
	claims   string
	mark     string
	numbered bool
}

// claimsName stands for the name of the table of claims until the placeholders are
// found: the schema that the server names can have any character.
const claimsName = "\x00"

func (c claimCompiler) plain(text string) string {
	return strings.ReplaceAll(c.names.Replace(text), claimsName, c.claims)
}

func (c claimCompiler) statement(text string) claimStatement {
	text = c.names.Replace(text)
	var query, order strings.Builder
	for {
		before, rest, more := strings.Cut(text, "{")
		query.WriteString(before)
		if !more {
			return claimStatement{strings.ReplaceAll(query.String(), claimsName, c.claims), order.String()}
		}
		query.WriteString(c.mark)
		at := strings.IndexByte(order.String(), rest[0])
		if !c.numbered || at < 0 {
			at = order.Len()
			order.WriteByte(rest[0])
		}
		if c.numbered {
			query.WriteString(strconv.Itoa(at + 1))
		}
		text = rest[len("k}"):]
	}
}

// claimsOf makes the statements. name is the stock table as it was given.
func claimsOf(db *sqldb.DB, name string, q quoted) claimStatements {
	table := db.Table("claims")
	switch db.Kind() {
	case sqldb.Postgres:
		return postgresClaims(table, q)
	case sqldb.SQLite:
		return sqliteClaims(table, name, q)
	default:
		return mysqlClaims(db.Kind(), table, name, q)
	}
}
