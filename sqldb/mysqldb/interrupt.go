package mysqldb

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// interrupter ends statements of a connection: each carries a comment by which a
// second connection finds the session in the process list, and kills the
// statement, not the session. A user sees the own threads there without any
// privilege. The connection id could be asked for beforehand, but that is a round
// trip for every statement, and this one is for the few whose ctx ends.
func interrupter(db *sql.DB, _ *sql.Conn) (string, func(ctx context.Context) error) {
	var id [8]byte
	binary.BigEndian.PutUint64(id[:], rand.Uint64())
	buf := make([]byte, 0, len("/* sqllock 0123456789abcdef */ "))
	buf = append(hex.AppendEncode(append(buf, "/* sqllock "...), id[:]), " */ "...)
	mark := string(buf)
	return mark, func(ctx context.Context) error {
		ids, err := find(ctx, db, mark)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if _, err := db.ExecContext(ctx, "KILL QUERY "+strconv.FormatInt(id, 10)); err != nil {
				return err
			}
		}
		return nil
	}
}

// find returns the ids of the threads whose statement begins with mark.
func find(ctx context.Context, db *sql.DB, mark string) (ids []int64, err error) {
	rows, err := db.QueryContext(ctx, "SHOW FULL PROCESSLIST")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	cols, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values := make([]sql.NullString, len(cols))
	ptrs := make([]any, len(cols))
	id, info := -1, -1
	for i, c := range cols {
		ptrs[i] = &values[i]
		switch strings.ToLower(c) {
		case "id":
			id = i
		case "info":
			info = i
		}
	}
	if id < 0 || info < 0 {
		return nil, fmt.Errorf("mysqldb: the process list has the columns %v", cols)
	}
	for rows.Next() {
		if err := rows.Scan(ptrs...); err != nil {
			return nil, err
		}
		if strings.HasPrefix(values[info].String, mark) {
			n, err := strconv.ParseInt(values[id].String, 10, 64)
			if err != nil {
				return nil, err
			}
			ids = append(ids, n)
		}
	}
	return ids, rows.Err()
}
