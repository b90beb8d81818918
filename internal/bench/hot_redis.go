package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// errUnavailable: what the figure is compared with is not on this machine.
var errUnavailable = errors.New("not on this machine")

// The floors that Redis is.
const (
	decr = "DECR t_bonus"
	// claimScript is what people write: one that has claimed gets its answer again, and
	// nothing is taken below zero.
	claimScript = `local was = redis.call('HGET', KEYS[2], ARGV[1])
if was then return tonumber(was) end
local left = tonumber(redis.call('GET', KEYS[1]))
if left < tonumber(ARGV[2]) then return -1 end
left = redis.call('DECRBY', KEYS[1], ARGV[2])
redis.call('HSET', KEYS[2], ARGV[1], left)
return left`
)

const redisAbout = "Redis, without persistence, is begun for this on the same machine, behind a Unix socket; its client is a pool of 10 connections per CPU, as go-redis has by default, and writes the protocol by hand, which costs less than go-redis does. Not measured where there is no redis-server."

// hotOverRedis is how many takes a second get through one row, over DECR.
func hotOverRedis(workers, rounds int, each time.Duration, limit float64) figure {
	return figure{
		name:  fmt.Sprintf("hot-row-over-redis-%d", workers),
		unit:  "ratio",
		about: fmt.Sprintf("takes per second of 1 from one row: Combined.Take, durable, over Redis DECR, which is not, and has no guard; %d goroutines. %s", workers, redisAbout),
		on:    []target{{sqldb.Postgres, atLeast(limit), decr}},
		measure: func(ctx context.Context, b *bed) (m measurement, err error) {
			h, r, err := b.hotAndRedis(ctx, each)
			if err != nil {
				return m, err
			}
			defer h.close()
			m, err = crowdRatio(ctx, min(b.rounds, rounds), workers, each, h.combined, func(ctx context.Context, _ int) error {
				_, err := r.do("DECR", "t_bonus")
				return err
			})
			m.note += "; " + h.String()
			return m, err
		},
	}
}

// hotClaimsOverRedis is the same with claims, over a script.
func hotClaimsOverRedis(workers, rounds int, each time.Duration, limit float64) figure {
	return figure{
		name:  fmt.Sprintf("hot-row-claims-over-redis-%d", workers),
		unit:  "ratio",
		about: fmt.Sprintf("takes per second of 1 from one row, each with a claim of its own: Combined.TakeOnce, durable, over a script in Redis, which is not; %d goroutines. %s", workers, redisAbout),
		on:    []target{{sqldb.Postgres, atLeast(limit), claimScript}},
		measure: func(ctx context.Context, b *bed) (m measurement, err error) {
			h, r, err := b.hotAndRedis(ctx, each)
			if err != nil {
				return m, err
			}
			defer h.close()
			sha, err := r.do("SCRIPT", "LOAD", claimScript)
			if err != nil {
				return m, err
			}
			m, err = crowdRatio(ctx, min(b.rounds, rounds), workers, each, h.combinedOnce, func(ctx context.Context, _ int) error {
				left, err := r.do("EVALSHA", sha, "2", "t_bonus", "claims", h.claim(), "1")
				if err == nil && left == "-1" {
					err = errors.New("refused")
				}
				return err
			})
			m.note += "; " + h.String()
			return m, err
		},
	}
}

func (b *bed) hotAndRedis(ctx context.Context, each time.Duration) (*hot, *redis, error) {
	r, err := b.redis(ctx)
	if err != nil {
		return nil, nil, err
	}
	if _, err := r.do("SET", "t_bonus", "1000000000000"); err != nil {
		return nil, nil, err
	}
	h, err := b.hot(ctx, each)
	return h, r, err
}

// redis is a pool of connections to a server.
type redis struct{ conns chan *redisConn }

type redisConn struct {
	net.Conn
	in *bufio.Reader
}

// redis begins a server, which close ends.
func (b *bed) redis(ctx context.Context) (r *redis, err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("%w: %w (Debian and Ubuntu have it in the package redis-server)", errUnavailable, err)
	}
	dir, err := os.MkdirTemp("", "sqllock_test_")
	if err != nil {
		return nil, err
	}
	b.closing = append(b.closing, func() error { return os.RemoveAll(dir) })
	socket := filepath.Join(dir, "redis.sock")
	server := exec.Command(path, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", dir, "--logfile", "")
	if err := server.Start(); err != nil {
		return nil, err
	}
	b.closing = append(b.closing, func() error {
		_ = server.Process.Kill()
		_ = server.Wait() // it was killed
		return nil
	})
	r = &redis{conns: make(chan *redisConn, 10*runtime.GOMAXPROCS(0))}
	b.closing = append(b.closing, r.close)
	deadline := time.Now().Add(10 * time.Second)
	for len(r.conns) < cap(r.conns) {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			if time.Now().After(deadline) {
				return nil, fmt.Errorf("redis-server does not answer: %w", err)
			}
			if err := pause(ctx, 10*time.Millisecond); err != nil {
				return nil, err
			}
			continue
		}
		r.conns <- &redisConn{conn, bufio.NewReader(conn)}
	}
	return r, nil
}

func (r *redis) close() error {
	for range len(r.conns) {
		_ = (<-r.conns).Close()
	}
	return nil
}

// do runs a command, and returns its answer, a number or a text.
func (r *redis) do(words ...string) (string, error) {
	c := <-r.conns
	defer func() { r.conns <- c }()
	b := append(strconv.AppendInt(append(make([]byte, 0, 256), '*'), int64(len(words)), 10), "\r\n"...)
	for _, w := range words {
		b = append(strconv.AppendInt(append(b, '$'), int64(len(w)), 10), "\r\n"...)
		b = append(append(b, w...), "\r\n"...)
	}
	if _, err := c.Write(b); err != nil {
		return "", err
	}
	line, err := c.line()
	if err != nil || line == "" {
		return "", fmt.Errorf("redis: %q: %w", line, err)
	}
	switch line[0] {
	case '$': // the text's length, and then the text
		return c.line()
	case '-':
		return "", fmt.Errorf("redis: %s", line[1:])
	}
	return line[1:], nil
}

func (c *redisConn) line() (string, error) {
	line, err := c.in.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}
