package mysqldb

import (
	"encoding/hex"
	"math"
	"strconv"
	"strings"
)

// inline writes arguments into a statement. With arguments beside it,
// go-sql-driver prepares, executes and closes every statement: two round trips for
// one. Its own interpolateParams does the same as this, but is the DSN's to
// choose.
//
// A text becomes _utf8mb4 x'..', which no sql_mode (NO_BACKSLASH_ESCAPES) and no
// connection character set can misread, and which is compared by the collation of
// the column. What cannot be written (an infinite float, a statement whose
// question marks are not all placeholders) is left as it is.
func inline(query string, args []any) (string, []any) {
	var b strings.Builder
	b.Grow(len(query) + 24*len(args))
	n := 0
	for i := 0; i < len(query); i++ {
		switch c := query[i]; c {
		case '?':
			b.WriteByte(' ') // "a-?" must not become a comment, nor "?AND" a name
			if n == len(args) || !literal(&b, args[n]) {
				return query, args
			}
			b.WriteByte(' ')
			n++
		case '\'', '"', '`':
			end := strings.IndexByte(query[i+1:], c)
			if end < 0 || strings.IndexByte(query[i+1:i+1+end], '\\') >= 0 {
				return query, args // what a backslash means depends on sql_mode
			}
			b.WriteString(query[i : i+end+2])
			i += end + 1
		case '#', '\\':
			return query, args
		case '-', '/':
			if i+1 < len(query) && (query[i+1] == '-' && c == '-' || query[i+1] == '*' && c == '/') {
				end := strings.Index(query[i:], "*/")
				if c == '-' || end < 0 {
					return query, args
				}
				b.WriteString(query[i : i+end+2])
				i += end + 1
				continue
			}
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	if n != len(args) {
		return query, args
	}
	return b.String(), nil
}

func literal(b *strings.Builder, arg any) bool {
	switch v := arg.(type) {
	case nil:
		b.WriteString("NULL")
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return false
		}
		b.WriteString(strconv.FormatFloat(v, 'e', -1, 64)) // with an exponent it is a DOUBLE
	case bool:
		if v {
			b.WriteByte('1')
		} else {
			b.WriteByte('0')
		}
	case string:
		b.WriteString("_utf8mb4 x'")
		b.WriteString(hex.EncodeToString([]byte(v)))
		b.WriteByte('\'')
	case []byte:
		if v == nil {
			b.WriteString("NULL")
			return true
		}
		b.WriteString("_binary x'") // a bare one is a number where a number is wanted
		b.WriteString(hex.EncodeToString(v))
		b.WriteByte('\'')
	default:
		return false
	}
	return true
}
