package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

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

const redisAbout = "Redis, without persistence, is begun for this on the same machine, behind a Unix socket; its client is go-redis with its own defaults. Not measured where there is no redis-server."

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
				return r.Decr(ctx, "t_bonus").Err()
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
			script := redis.NewScript(claimScript)
			if err := script.Load(ctx, r).Err(); err != nil {
				return m, err
			}
			m, err = crowdRatio(ctx, min(b.rounds, rounds), workers, each, h.combinedOnce, func(ctx context.Context, _ int) error {
				left, err := script.Run(ctx, r, []string{"t_bonus", "claims"}, h.claim(), 1).Int64()
				if err == nil && left < 0 {
					err = errors.New("refused")
				}
				return err
			})
			m.note += "; " + h.String()
			return m, err
		},
	}
}

func (b *bed) hotAndRedis(ctx context.Context, each time.Duration) (*hot, *redis.Client, error) {
	r, err := b.redis(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := r.Set(ctx, "t_bonus", int64(1000000000000), 0).Err(); err != nil {
		return nil, nil, err
	}
	h, err := b.hot(ctx, each)
	return h, r, err
}

// redis begins a server, which close ends.
func (b *bed) redis(ctx context.Context) (*redis.Client, error) {
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
	r := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	b.closing = append(b.closing, r.Close)
	for deadline := time.Now().Add(10 * time.Second); ; {
		err := r.Ping(ctx).Err()
		if err == nil {
			return r, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("redis-server does not answer: %w", err)
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
}
