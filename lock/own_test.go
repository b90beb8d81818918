package lock

import (
	"errors"
	"testing"
)

// An option of one strategy reaches it, the last one wins, and every other strategy
// refuses it.
func TestOwn(t *testing.T) {
	one, two := Own("a", "a.N", 1), Own("a", "a.N", 2)
	o, err := Collect("a", 0, []Option{one}, []Option{two})
	if err != nil || o.Own("a.N") != 2 || o.Own("a.M") != nil {
		t.Errorf("%v, %v, %v", err, o.Own("a.N"), o.Own("a.M"))
	}
	if _, err := Collect("b", 0, nil, []Option{one}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("another strategy: %v", err)
	}
}
