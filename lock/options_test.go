package lock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/lock"
)

const all = lock.FeatureNoRenew | lock.FeatureAtMost | lock.FeatureHoldAtLeast | lock.FeatureShared

func TestOptionsDefaults(t *testing.T) {
	o, err := lock.Collect("s", 0, nil, nil)
	if err != nil || o.TTL != 30*time.Second || o.Wait != lock.Forever || o.NoRenew || o.AtMost != 0 || o.HoldAtLeast != 0 || o.Reentrant || o.Shared || o.Label != "" || o.Trace != nil {
		t.Errorf("%+v, %v", o, err)
	}
}

// Acquire's options override the Locker's.
func TestOptionsOverride(t *testing.T) {
	base := []lock.Option{lock.TTL(time.Second), lock.Wait(time.Second), lock.Label("base")}
	o, err := lock.Collect("s", all, base, []lock.Option{
		lock.TTL(time.Minute), lock.Try(), lock.NoRenew(), lock.AtMost(time.Hour), lock.HoldAtLeast(time.Hour), lock.Reentrant(), lock.Shared(),
	})
	if err != nil || o.TTL != time.Minute || o.Wait != 0 || o.Label != "base" || !o.NoRenew || o.AtMost != time.Hour || o.HoldAtLeast != time.Hour || !o.Reentrant || !o.Shared {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := lock.Collect("s", all, []lock.Option{lock.Try()}, []lock.Option{lock.Wait(lock.Forever), lock.Label("")}); err != nil || o.Wait != lock.Forever || o.Label != "" {
		t.Errorf("%+v, %v", o, err)
	}
}

// What a strategy has no feature for is refused, not ignored.
func TestOptionsUnsupported(t *testing.T) {
	for name, c := range map[string]struct {
		f   lock.Features
		opt lock.Option
	}{
		"NoRenew":     {lock.FeatureNoRenew, lock.NoRenew()},
		"AtMost":      {lock.FeatureAtMost, lock.AtMost(time.Hour)},
		"HoldAtLeast": {lock.FeatureHoldAtLeast, lock.HoldAtLeast(time.Hour)},
		"Shared":      {lock.FeatureShared, lock.Shared()},
	} {
		if _, err := lock.Collect("s", c.f, nil, []lock.Option{c.opt}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, lists := range [][2][]lock.Option{{nil, {c.opt}}, {{c.opt}, nil}} {
			_, err := lock.Collect("the strategy", all&^c.f, lists[0], lists[1])
			if !errors.Is(err, errors.ErrUnsupported) || errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "the strategy") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestOptionsInvalid(t *testing.T) {
	const tooLong = 101 * 365 * 24 * time.Hour
	for name, opts := range map[string][]lock.Option{
		"TTL 199ms": {lock.TTL(200*time.Millisecond - 1)}, "TTL too long": {lock.TTL(tooLong)}, "TTL -1": {lock.TTL(-1)},
		"Wait -1":  {lock.Wait(-1)},
		"AtMost 0": {lock.AtMost(0)}, "AtMost 199ms": {lock.AtMost(200*time.Millisecond - 1)}, "AtMost too long": {lock.AtMost(tooLong)},
		"HoldAtLeast 0": {lock.HoldAtLeast(0)}, "HoldAtLeast too long": {lock.HoldAtLeast(tooLong)},
		"Label 201": {lock.Label(strings.Repeat("x", 201))}, "Label NUL": {lock.Label("\x00")}, "Label not UTF-8": {lock.Label("\xff")},
		"nil":                      {lock.Try(), nil},
		"HoldAtLeast above AtMost": {lock.AtMost(time.Second), lock.HoldAtLeast(time.Second + 1)},
	} {
		for _, lists := range [][2][]lock.Option{{nil, opts}, {opts, nil}} {
			_, err := lock.Collect("the strategy", all, lists[0], lists[1])
			only(t, err, lock.ErrInvalid)
			if err == nil || !strings.Contains(err.Error(), "the strategy") || len(err.Error()) > 200 {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for _, opts := range [][]lock.Option{
		{lock.TTL(lock.MinTTL)},
		{lock.TTL(100 * 365 * 24 * time.Hour)},
		{lock.Wait(0)},
		{lock.AtMost(lock.MinTTL)},
		{lock.HoldAtLeast(1)},
		{lock.Label(strings.Repeat("x", 200))},
		{lock.AtMost(time.Second), lock.HoldAtLeast(time.Second)},
	} {
		if _, err := lock.Collect("s", all, nil, opts); err != nil {
			t.Error(err)
		}
	}
}
