package stock

import "testing"

// Memory is bounded, and what is remembered of one id is that of this id.
func TestSpreadsAreBounded(t *testing.T) {
	var x spreads
	for i := range int64(maxSpread + 100) {
		x.learn(i, 4)
	}
	if n := len(x.ids); n != maxSpread {
		t.Errorf("%d ids are remembered, of %d at most", n, maxSpread)
	}
	if _, old := x.start(int64(maxSpread + 99)); old {
		t.Error("the last one was forgotten")
	}
	x.learn("many", MaxSlots*2)
	x.learn("none", 0)
	for range 10 {
		if slot, _ := x.start("none"); slot != 0 {
			t.Errorf("slot %d of none", slot)
		}
		if slot, _ := x.start("many"); slot < 0 || slot >= MaxSlots {
			t.Errorf("slot %d", slot)
		}
	}
}

// Goroutines of one process go around the slots, and begin anywhere.
func TestSpreadsGoAround(t *testing.T) {
	first := map[int64]bool{}
	for range 200 {
		var x spreads
		x.learn("id", 16)
		seen := map[int64]bool{}
		for i := range 16 {
			slot, old := x.start("id")
			if old {
				t.Fatal("what was just learnt is old")
			}
			if i == 0 {
				first[slot] = true
			}
			seen[slot] = true
		}
		if len(seen) != 16 {
			t.Fatalf("16 takes begin with %d slots", len(seen))
		}
	}
	if len(first) < 8 {
		t.Errorf("200 processes begin with %d slots only", len(first))
	}
}
