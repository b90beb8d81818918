package main

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{[]float64{7}, 0.5, 7},
		{[]float64{3, 1, 2}, 0.5, 2},
		{[]float64{4, 1, 3, 2}, 0.5, 2.5},
		{[]float64{5, 1, 2, 4, 3}, 0.25, 2},
		{[]float64{5, 1, 2, 4, 3}, 1, 5},
		{[]float64{1, 2}, 0.75, 1.75},
	} {
		if got := quantile(tt.values, tt.q); got != tt.want {
			t.Errorf("quantile(%v, %v) is %v, want %v", tt.values, tt.q, got, tt.want)
		}
	}
	values := []float64{3, 1, 2}
	if median(values); values[0] != 3 {
		t.Error("the caller's values were sorted")
	}
	if !math.IsNaN(median(nil)) {
		t.Error("the median of nothing is a number")
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{1.03: "1.03", 1.0266: "1.027", 12: "12", 0.9999: "1", 12345.6789: "12345.679"} {
		if got := number(v); got != want {
			t.Errorf("%v is printed as %s, want %s", v, got, want)
		}
	}
}

// Each round measures both sides, and each side is first in half of them, in no
// fixed order.
func TestAlternate(t *testing.T) {
	const n = 64
	var order strings.Builder
	count := func(letter byte, v float64) side {
		return func(context.Context) (float64, error) {
			order.WriteByte(letter)
			v++
			return v, nil
		}
	}
	pairs, err := alternate(t.Context(), n, count('o', 0), count('f', 1000))
	if err != nil || len(pairs) != n {
		t.Fatalf("%d pairs, %v", len(pairs), err)
	}
	for i, p := range pairs {
		if want := (pair{float64(i + 1), float64(i + 1001)}); p != want {
			t.Fatalf("round %d is %v, want %v", i, p, want)
		}
	}
	first := map[string]int{}
	for i := range n {
		first[order.String()[2*i:2*i+2]]++
	}
	if first["of"] != n/2 || first["fo"] != n/2 {
		t.Errorf("the orders are %v, want each %d times", first, n/2)
	}
	if fixed := strings.Repeat("offo", n/2); order.String() == fixed {
		t.Error("the order is not drawn by lot")
	}
	ours, floor := split(pairs[:2])
	if len(ours) != 2 || ours[1] != 2 || floor[1] != 1002 {
		t.Errorf("split into %v and %v", ours, floor)
	}
}

func TestAlternateFails(t *testing.T) {
	broken := errors.New("no such row")
	sound := func(context.Context) (float64, error) { return 1, nil }
	fails := func(context.Context) (float64, error) { return 0, broken }
	for _, tt := range []struct {
		ours, floor side
		name        string
	}{{fails, sound, "ours: "}, {sound, fails, "the floor: "}} {
		_, err := alternate(t.Context(), 3, tt.ours, tt.floor)
		if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), tt.name) {
			t.Errorf("the error is %v, want one of %s", err, tt.name)
		}
	}
}

// What takes three times as long has a ratio of about three.
func TestTimeRatio(t *testing.T) {
	sleep := func(d time.Duration) operation {
		return func(context.Context) error {
			for start := time.Now(); time.Since(start) < d; {
			}
			return nil
		}
	}
	b := &bed{rounds: 5}
	m, err := b.timeRatio(t.Context(), sleep(600*time.Microsecond), sleep(200*time.Microsecond))
	if err != nil || len(m.values) != 5 {
		t.Fatalf("%d values, %v", len(m.values), err)
	}
	if got := median(m.values); got < 2 || got > 4 {
		t.Errorf("the ratio is %v, want about 3", got)
	}
	if !strings.Contains(m.note, "ours ") || !strings.Contains(m.note, "the floor ") {
		t.Errorf("the note is %q", m.note)
	}
	broken := errors.New("no such row")
	if _, err := b.timeRatio(t.Context(), func(context.Context) error { return broken }, sleep(1)); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}
