package dsn_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dsn"
)

// listen serves each connection by f.
func listen(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				f(conn)
			}()
		}
	}()
	return l.Addr().String()
}

// TestNoAnswer: a server of another kind takes the connection, and waits.
func TestNoAnswer(t *testing.T) {
	addr := listen(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	for _, tt := range []struct {
		s     string
		limit time.Duration
		want  string
	}{
		{"mysql://u:hunter2@" + addr + "/d", 50 * time.Millisecond, "no MySQL/MariaDB answer from " + addr + " within 50ms: is it another server?"},
		{"mariadb://u:hunter2@" + addr + "/d?timeout=60ms", time.Hour, "no MySQL/MariaDB answer from " + addr + " within 60ms: is it another server?"},
		{"u:hunter2@tcp(" + addr + ")/d", 50 * time.Millisecond, "no MySQL/MariaDB answer from " + addr + " within 50ms"},
		{"postgres://u:hunter2@" + addr + "/d", 50 * time.Millisecond, "no PostgreSQL answer from " + addr + " within 50ms: is it another server?"},
		{"postgres://u:hunter2@" + addr + "/d?connect_timeout=1", time.Hour, "no PostgreSQL answer from " + addr + " within 1s"},
	} {
		d, err := dsn.Parse(tt.s)
		if err != nil {
			t.Fatal(err)
		}
		d.SetAnswerTimeout(tt.limit)
		begun := time.Now()
		_, _, err = d.Open(t.Context())
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", tt.s, err)
		}
		if took := time.Since(begun); took > 30*time.Second {
			t.Errorf("%s: it took %v", tt.s, took)
		}
		// Who calls it off gets another answer.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err = d.Open(ctx); err == nil || strings.Contains(err.Error(), "another server") {
			t.Errorf("%s, under a ctx that has ended: %v", tt.s, err)
		}
	}
}

// TestPostgresRefusal: pgx tells of every attempt, and the last one is what counts.
func TestPostgresRefusal(t *testing.T) {
	const fatal = "SFATAL\x00C28P01\x00Mpassword authentication failed for user \"u\"\x00\x00"
	server := listen(t, func(conn net.Conn) {
		first := make([]byte, 8)
		if _, err := io.ReadFull(conn, first); err != nil {
			return
		}
		if binary.BigEndian.Uint32(first[4:]) == 80877103 { // may we speak TLS?
			_, _ = conn.Write([]byte("N"))
			return
		}
		answer := binary.BigEndian.AppendUint32([]byte("E"), uint32(4+len(fatal)))
		_, _ = conn.Write(append(answer, fatal...))
		_, _ = io.Copy(io.Discard, conn)
	})
	greeting := listen(t, func(conn net.Conn) {
		_, _ = conn.Write(append([]byte("J\x00\x00\x00\x0a9.1.0\x00"), bytes.Repeat([]byte("K\x00\x00\x00\x05x"), 9)...))
		_, _ = io.Copy(io.Discard, conn)
	})
	for s, want := range map[string]string{
		server + "/d":                     `: FATAL: password authentication failed for user "u" (SQLSTATE 28P01)`,
		server + "/d?sslmode=require":     "server refused TLS connection",
		"127.0.0.1:1/d":                   "connection refused",
		server + ",127.0.0.1:1/d":         "FATAL: password authentication failed", // the last host is not asked any more
		"127.0.0.1:1," + server + "/d":    "FATAL: password authentication failed",
		greeting + "/d?connect_timeout=5": "another server?",
	} {
		text := refusal(t, "postgres://u:hunter2@"+s)
		if !strings.Contains(text, want) || strings.Contains(text, "\n") || strings.Contains(text, "hunter2") {
			t.Errorf("%s: %q", s, text)
		}
		if strings.Count(text, "connection refused") > 1 || strings.Contains(text, "TLS") && !strings.Contains(s, "sslmode") {
			t.Errorf("%s: %q", s, text)
		}
	}
}
