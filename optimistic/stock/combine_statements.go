package stock

import (
	"strconv"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// combineStatements are what a [Combined] says to its database. The SQL about claims
// stands in combine_postgres.go, combine_mysql.go and combine_sqlite.go.
type combineStatements struct {
	// take and put run in autocommit, takeTx in a transaction: those of a Stock, with
	// as many versions as members are served.
	take, put, takeTx batchStatement
	claims            batchClaims
}

// batchClaims are the statements about the claims of a batch.
type batchClaims struct {
	// insert makes those of the claims that are not there, in their order, with the
	// receipts that they will most likely have, and answers claim and time of each; on
	// MySQL and MariaDB it answers nothing. Who has made a claim and not yet committed
	// is waited for.
	insert claimStatement
	// find reads claims: claim, owner, n, left_after, created_at. findTx reads them as
	// they are, after insert in its transaction.
	find, findTx claimStatement
	// lock locks the row, and reads what claimStatements.look does.
	lock claimStatement
	// receipts writes left_after of claims.
	receipts claimStatement
	// atOnce makes the claims, and takes for them, in one statement in autocommit, and
	// answers when, and a number; or it fails, and changes nothing, if not all of it is as
	// it was thought to be. Only PostgreSQL has it.
	atOnce claimStatement
	// list makes the arguments behind the letters C, N, L, or J, of claims.
	list func(wants []wantedClaim) claimList
}

// wantedClaim is one claim of a batch.
type wantedClaim struct {
	claim   string
	n, left int64
}

// claimList is a list of claims as one argument, or as several of the same length, so
// that the statement's text is the same whatever their number.
type claimList struct{ claims, ns, lefts, json string }

// claimBatch is what a statement about several claims of one row is told.
type claimBatch struct {
	id         any
	key, owner string
	claimList
	before, sum, members int64 // for atOnce
}

// batchArgs makes the arguments.
func (st claimStatement) batchArgs(kind sqldb.Kind, b claimBatch) []any {
	args := make([]any, len(st.order))
	for i := range args {
		switch st.order[i] {
		case 'i':
			args[i] = b.id
		case 'k':
			args[i] = asText(kind, b.key)
		case 'o':
			args[i] = asText(kind, b.owner)
		case 'C':
			args[i] = b.claims
		case 'N':
			args[i] = b.ns
		case 'L':
			args[i] = b.lefts
		case 'B':
			args[i] = b.before
		case 'S':
			args[i] = b.sum
		case 'M':
			args[i] = b.members
		default: // 'J'
			args[i] = b.json
		}
	}
	return args
}

// batchStatement is a statement that serves several: the sum is its number, and the
// version goes up by how many they are, if there is one.
type batchStatement struct{ statement }

func (b batchStatement) args(id any, sum, members int64) []any {
	args := make([]any, len(b.order))
	for i, c := range b.order {
		switch c {
		case 'i':
			args[i] = id
		case 'n':
			args[i] = sum
		default: // 'v'
			args[i] = members
		}
	}
	return args
}

// inline writes arguments into the text where all of them are numbers, on MySQL and
// MariaDB: with arguments beside it, go-sql-driver makes two round trips of a statement.
func (b batchStatement) inline(kind sqldb.Kind, args []any) (string, []any) {
	if !kind.InnoDB() {
		return b.query, args
	}
	query := make([]byte, 0, len(b.query)+20*len(args))
	rest := b.query
	for _, a := range args {
		n, ok := a.(int64)
		before, after, found := strings.Cut(rest, "?")
		if !ok || !found {
			return b.query, args
		}
		query = strconv.AppendInt(append(query, before...), n, 10)
		rest = after
	}
	return string(append(query, rest...)), nil
}

// forBatch makes a statement for several of one for one member.
func forBatch(kind sqldb.Kind, q quoted, st statement) batchStatement {
	if q.version == "" {
		return batchStatement{st}
	}
	one := q.version + " + 1"
	mark := "?"
	switch at := strconv.Itoa(len(st.order) + 1); kind {
	case sqldb.Postgres:
		mark = "$" + at + "::bigint"
		st.order += "v"
	case sqldb.SQLite:
		mark = "?" + at
		st.order += "v"
		// What a version has room for is not one any more.
		st.query = strings.Replace(st.query, q.version+" < "+sqliteMaxInt, q.version+" <= "+sqliteMaxInt+" - "+mark, 1)
	default: // the marks are in the order of the text
		at := strings.Count(st.query[:strings.Index(st.query, one)], "?")
		st.order = st.order[:at] + "v" + st.order[at:]
	}
	st.query = strings.Replace(st.query, one, q.version+" + "+mark, 1)
	return batchStatement{st}
}

func combineStatementsFor(s *Stock) combineStatements {
	kind := s.db.Kind()
	q := s.names
	c := combineStatements{take: forBatch(kind, q, s.sql.take), put: forBatch(kind, q, s.sql.put), takeTx: forBatch(kind, q, s.sql.takeTx)}
	switch table := s.db.Table("claims"); kind {
	case sqldb.Postgres:
		c.claims = postgresBatch(table, q)
	case sqldb.SQLite:
		c.claims = sqliteBatch(table, s.table.Name, q)
		c.claims.lock = s.claims.look // there is one writer
	default:
		c.claims = mysqlBatch(kind, table, s.table.Name, q)
		c.claims.lock = s.claims.look
		c.claims.lock.query += " FOR UPDATE"
	}
	return c
}

// jsonList writes claims as JSON, [[claim, n, left], ..], each as text makes it.
func jsonList(wants []wantedClaim, text func(b []byte, claim string) []byte) claimList {
	b := make([]byte, 0, 64*len(wants))
	for i, w := range wants {
		b = append(b, "[,"[min(i, 1)], '[')
		b = append(text(b, w.claim), ',')
		b = append(strconv.AppendInt(b, w.n, 10), ',')
		b = append(strconv.AppendInt(b, w.left, 10), ']')
	}
	return claimList{json: string(append(b, ']'))}
}
