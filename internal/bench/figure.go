package main

import (
	"context"
	"strconv"

	"github.com/sqlnative/locks/sqldb"
)

// figures are all figures there are, in the order in which they are measured.
func figures() []figure {
	return []figure{
		takeRatio(), casRatio(casGoroutines, casRounds, casTime), orderRatio(crowdRounds, crowdTime), soldOutRatio(crowdRounds, crowdTime),
		uncontendedRatio(), walSyncs(), tryHeldRatio(), tryPinned(), renewStatements(renewLocks, renewTTL), pairSnapshot(snapshotPairs),
		advisoryRatio(), advisoryHandover(), advisoryConnections(),
		hotRatio(64, hotRounds, hotTime, 20, 15, 8), hotRatio(512, hotRounds, hotTime, 150, 100, 50), hotP99(64, hotRounds, hotTime),
		hotClaims(64, hotRounds, hotTime, 12, 12, 7), hotClaims(512, hotRounds, hotTime, 40, 40, 25), combineLone(),
		hotOverRedis(64, hotRounds, hotTime, 1.2), hotOverRedis(512, hotRounds, hotTime, 5),
		hotClaimsOverRedis(64, hotRounds, hotTime, 0.7), hotClaimsOverRedis(512, hotRounds, hotTime, 2),
		slotsRatio(hotRounds, hotTime),
		runOverhead(),
	}
}

// figure is one number, measured on one or more databases.
type figure struct {
	name string // "take-ratio"
	unit string // "ratio", "ms", "statements"
	// about says in a sentence or two what is measured, over what, and how many
	// goroutines do it.
	about string
	// on are the databases that it is measured on.
	on []target
	// measure measures on a database that was made for it.
	measure func(ctx context.Context, b *bed) (measurement, error)
}

// target is one database of a figure.
type target struct {
	kind  sqldb.Kind
	bound bound
	// floor is the SQL (or whatever it is) that the figure is compared with; empty if
	// it is a number of its own.
	floor string
}

// measurement is what was measured: the figure is the median of values.
type measurement struct {
	values []float64 // one per round
	note   string    // for people: how long the two sides took, what they allocated
}

// bound is what a figure has to keep. The zero bound lets everything through: the
// figure is only reported.
type bound struct {
	sense int // -1: at least limit, 1: at most limit
	limit float64
}

func atMost(limit float64) bound  { return bound{1, limit} }
func atLeast(limit float64) bound { return bound{-1, limit} }

func (b bound) keeps(v float64) bool {
	return b.sense == 0 || float64(b.sense)*v <= float64(b.sense)*b.limit
}

func (b bound) String() string {
	switch {
	case b.sense < 0:
		return "at least " + number(b.limit)
	case b.sense > 0:
		return "at most " + number(b.limit)
	}
	return "no bound, reported only"
}

// number is how a value is printed: with three decimals at most.
func number(v float64) string { return strconv.FormatFloat(rounded(v), 'f', -1, 64) }
