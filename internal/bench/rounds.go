package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"
)

// side is one of the two that are compared; it does its work once, and says what
// was measured: nanoseconds, operations per second.
type side func(ctx context.Context) (float64, error)

// pair is what was measured of ours, and right beside it of the floor.
type pair struct{ ours, floor float64 }

// alternate measures both sides n times in turn, so that whatever else the machine
// does meets both of them. Which one is first is drawn by lot, as often the one as
// the other: what comes second finds a log that has just been flushed, or a cache
// that is warm.
func alternate(ctx context.Context, n int, ours, floor side) ([]pair, error) {
	oursFirst := make([]bool, n)
	for i := range oursFirst {
		oursFirst[i] = i%2 == 0
	}
	rand.Shuffle(n, func(i, j int) { oursFirst[i], oursFirst[j] = oursFirst[j], oursFirst[i] })

	pairs := make([]pair, n)
	for i := range pairs {
		var err error
		measure := func(name string, s side, v *float64) {
			if err != nil {
				return
			}
			if *v, err = s(ctx); err != nil {
				err = fmt.Errorf("%s: %w", name, err)
			}
		}
		if oursFirst[i] {
			measure("ours", ours, &pairs[i].ours)
		}
		measure("the floor", floor, &pairs[i].floor)
		if !oursFirst[i] {
			measure("ours", ours, &pairs[i].ours)
		}
		if err != nil {
			return nil, err
		}
	}
	return pairs, nil
}

// split parts the two sides.
func split(pairs []pair) (ours, floor []float64) {
	for _, p := range pairs {
		ours = append(ours, p.ours)
		floor = append(floor, p.floor)
	}
	return ours, floor
}

// operation is what one goroutine does once.
type operation func(ctx context.Context) error

// The warm-up makes connections, prepares statements and fills caches, and tells
// how many operations a round takes: enough that a single slow one does not matter,
// and not more.
const (
	warmUp    = 300 * time.Millisecond
	roundTime = 30 * time.Millisecond
	minOps    = 10
)

// timeRatio compares how long two operations take, one goroutine. In a round the
// two alternate operation by operation, so that a burst of somebody else's work or
// a slow disk meets both; the round's ratio is that of their medians.
func (b *bed) timeRatio(ctx context.Context, ours, floor operation) (measurement, error) {
	ops, err := warm(ctx, ours, floor)
	if err != nil {
		return measurement{}, err
	}
	var m measurement
	var oursTimes, floorTimes []float64
	for range b.rounds {
		pairs, err := alternate(ctx, ops, timed(ours), timed(floor))
		if err != nil {
			return m, err
		}
		o, f := split(pairs)
		m.values = append(m.values, median(o)/median(f))
		oursTimes = append(oursTimes, o...)
		floorTimes = append(floorTimes, f...)
	}
	oursAllocs, err := allocations(ctx, ops, ours)
	if err != nil {
		return m, err
	}
	floorAllocs, err := allocations(ctx, ops, floor)
	if err != nil {
		return m, err
	}
	m.note = fmt.Sprintf("%d of each per round; ours %v and %d allocations, the floor %v and %d", ops,
		nanoseconds(median(oursTimes)), oursAllocs, nanoseconds(median(floorTimes)), floorAllocs)
	return m, nil
}

// timed makes a side of an operation: how many nanoseconds it takes.
func timed(op operation) side {
	return func(ctx context.Context) (float64, error) {
		start := time.Now()
		err := op(ctx)
		return float64(time.Since(start)), err
	}
}

// warm runs the operations for a while, and returns how many of each make a round.
func warm(ctx context.Context, ours, floor operation) (ops int, err error) {
	start := time.Now()
	n := 0
	for ; n < minOps || time.Since(start) < warmUp; n++ {
		for _, op := range []operation{ours, floor} {
			if err := op(ctx); err != nil {
				return 0, err
			}
		}
	}
	return max(minOps, int(float64(n)*float64(roundTime)/float64(time.Since(start)))), nil
}

// allocations counts those of one operation, of all goroutines, rounded.
func allocations(ctx context.Context, ops int, op operation) (int, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range ops {
		if err := op(ctx); err != nil {
			return 0, err
		}
	}
	runtime.ReadMemStats(&after)
	return int(math.Round(float64(after.Mallocs-before.Mallocs) / float64(ops))), nil
}

func median(values []float64) float64 { return quantile(values, 0.5) }

// quantile interpolates between the two values that q falls between; NaN if there
// are none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// rounded cuts a value to the decimals that are printed.
func rounded(v float64) float64 { return math.Round(v*1000) / 1000 }

func nanoseconds(v float64) time.Duration { return time.Duration(v).Round(100 * time.Nanosecond) }
