package stock

import (
	"strconv"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// postgresBatch: the claims come as arrays, in the text form that every driver can
// send. unnest answers them in their order, and so they are inserted, and locked, in
// that order. NO KEY UPDATE is what the UPDATE of the row will take.
//
// atOnce: the UPDATE counts the claims first, so they are made before the row is locked,
// in this statement too; and it takes only if the row has what the receipts were
// written for, which it looks at again if somebody has changed the row meanwhile. If it
// does not take, the sum in the answer is out of range, which undoes all of it. So does
// a claim that is there, by its key: ON CONFLICT would cost a third record of WAL for
// every claim. As it is all or nothing, one line answers for all of them, and they were
// made at one time, when the statement came.
func postgresBatch(table string, q quoted) batchClaims {
	of := identity(sqldb.Postgres, "", q)
	c := claimCompiler{claims: table, mark: "$", numbered: true, names: strings.NewReplacer("$claims", claimsName, "$stock", of, "$table", q.table, "$id", q.id,
		"$count", q.count, "$problem", postgresProblem(q), "$sound", postgresSound(q, "{i}"),
		"$version", q.ifVersion(", "+q.version+" = "+q.version+" + {M}::bigint"))}
	const made = `INSERT INTO $claims (stock, id, claim, owner, n, left_after, created_at)
SELECT $stock, {k}, w.claim, {o}, w.n, w.left_after, statement_timestamp()
FROM unnest({C}::text[], {N}::bigint[], {L}::bigint[]) AS w (claim, n, left_after)`
	find := c.statement(`SELECT claim, owner, n, left_after, created_at FROM $claims WHERE stock = $stock AND id = {k} AND claim = ANY({C}::text[])`)
	return batchClaims{
		insert: c.statement(made + `
ON CONFLICT DO NOTHING RETURNING claim, created_at`),
		atOnce: c.statement(`WITH made AS (
` + made + `
RETURNING 1
), taken AS (
UPDATE $table SET $count = $count - {S}::bigint$version
WHERE (SELECT count(*) FROM made) = {M}::bigint AND $id = {i} AND $count = {B}::bigint AND $id::text COLLATE "C" = {k}$sound
RETURNING 1
)
SELECT statement_timestamp(), 2147483647 + CASE WHEN EXISTS (SELECT FROM taken) THEN 0 ELSE 1 END`),
		find: find, findTx: find,
		lock: c.statement(`SELECT $id::text, $count::bigint, $problem FROM $table WHERE $id = {i} FOR NO KEY UPDATE`),
		receipts: c.statement(`UPDATE $claims AS c SET left_after = w.left_after
FROM unnest({C}::text[], {L}::bigint[]) AS w (claim, left_after)
WHERE c.stock = $stock AND c.id = {k} AND c.claim = w.claim COLLATE "C"`),
		list: arrays,
	}
}

// arrays are claims as array literals. In quotes, an element has two characters that
// mean something.
func arrays(wants []wantedClaim) claimList {
	claims := make([]byte, 0, 32*len(wants))
	ns := make([]byte, 0, 4*len(wants))
	lefts := make([]byte, 0, 12*len(wants))
	for i, w := range wants {
		separator := "{,"[min(i, 1)]
		claims = append(claims, separator, '"')
		for j := range len(w.claim) {
			if w.claim[j] == '"' || w.claim[j] == '\\' {
				claims = append(claims, '\\')
			}
			claims = append(claims, w.claim[j])
		}
		claims = append(claims, '"')
		ns = strconv.AppendInt(append(ns, separator), w.n, 10)
		lefts = strconv.AppendInt(append(lefts, separator), w.left, 10)
	}
	return claimList{claims: string(append(claims, '}')), ns: string(append(ns, '}')), lefts: string(append(lefts, '}'))}
}
