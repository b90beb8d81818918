package stock

import (
	"encoding/json"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// sqliteBatch: the claims come as JSON. (WHERE TRUE: without it, ON would belong to the
// FROM.)
func sqliteBatch(table, name string, q quoted) batchClaims {
	c := claimCompiler{claims: table, mark: "?", numbered: true, names: strings.NewReplacer("$claims", claimsName, "$stock", identity(sqldb.SQLite, name, q),
		"$now", "CAST(unixepoch('subsec') * 1000000 AS INTEGER)", "$wanted", "(SELECT json_extract(value, '$[0]') AS claim, json_extract(value, '$[1]') AS n, json_extract(value, '$[2]') AS left_after FROM json_each({J}))")}
	find := c.statement(`SELECT claim, owner, n, left_after, created_at FROM $claims WHERE stock = $stock AND id = {k} AND claim IN (SELECT claim FROM $wanted)`)
	return batchClaims{
		insert: c.statement(`INSERT INTO $claims (stock, id, claim, owner, n, left_after, created_at)
SELECT $stock, {k}, claim, {o}, n, left_after, $now FROM $wanted WHERE TRUE
ON CONFLICT DO NOTHING RETURNING claim, created_at`),
		find: find, findTx: find,
		receipts: c.statement(`UPDATE $claims AS c SET left_after = w.left_after FROM $wanted AS w
WHERE c.stock = $stock AND c.id = {k} AND c.claim = w.claim`),
		list: func(wants []wantedClaim) claimList {
			return jsonList(wants, func(b []byte, claim string) []byte {
				text, _ := json.Marshal(claim) // a string can be
				return append(b, text...)
			})
		},
	}
}
