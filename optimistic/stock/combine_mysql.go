package stock

import (
	"encoding/hex"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// mysqlBatch: the claims come as JSON, in hexadecimal, so that no character set of the
// session can change them.
//
// One claim of several that is there must not undo the statement. So it is INSERT
// IGNORE, and since that makes warnings of errors, neither its count nor its success
// says anything: whose claims they are is read, by their owner, with the lock
// that a claim that was there has got from it anyway. Only a claim that is read as
// this batch's is one.
//
// A batch asks no gate (see mysqlClaims): it would be at most of them, and hold up the
// claims of every other row. So it can be ended by a deadlock, where a claim of it
// is made by other processes at the same time and the first of them is refused; it is
// then repeated. One that goes alone asks for its gate, but does not wait there.
//
// STRAIGHT_JOIN: every claim is looked up by its key, in the order of the list,
// whatever the optimizer thinks of the table.
func mysqlBatch(kind sqldb.Kind, table, name string, q quoted) batchClaims {
	c := claimCompiler{claims: table, mark: "?", names: strings.NewReplacer("$claims", claimsName, "$stock", identity(kind, name, q),
		"$wanted", "JSON_TABLE({J}, '$[*]' COLUMNS (claim VARCHAR(510) PATH '$[0]', n BIGINT PATH '$[1]', left_after BIGINT PATH '$[2]')) AS w")}
	const on = "c.stock = $stock AND c.id = {k} AND c.claim = UNHEX(w.claim)"
	find := c.statement(`SELECT c.claim, c.owner, c.n, c.left_after, CAST(c.created_at AS CHAR) FROM $wanted STRAIGHT_JOIN $claims AS c ON ` + on)
	findTx := find
	if kind == sqldb.MariaDB {
		findTx.query += " LOCK IN SHARE MODE"
	} else {
		findTx.query += " FOR SHARE OF c" // a JSON_TABLE cannot be locked: 3569
	}
	return batchClaims{
		insert: c.statement(`INSERT IGNORE INTO $claims (stock, id, claim, owner, n, left_after, created_at)
SELECT $stock, {k}, UNHEX(w.claim), {o}, w.n, w.left_after, UTC_TIMESTAMP(6) FROM $wanted`),
		find: find, findTx: findTx,
		receipts: c.statement(`UPDATE $wanted STRAIGHT_JOIN $claims AS c ON ` + on + ` SET c.left_after = w.left_after`),
		list: func(wants []wantedClaim) claimList {
			return jsonList(wants, func(b []byte, claim string) []byte {
				return append(hex.AppendEncode(append(b, '"'), []byte(claim)), '"')
			})
		},
	}
}
