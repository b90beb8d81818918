package sqldb_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
)

// The clocks of these databases are this machine's.
func TestNow(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		before := time.Now().Truncate(time.Millisecond)
		now, err := db.Now(t.Context())
		if err != nil || now.Location() != time.UTC || now.Before(before.Add(-time.Minute)) || now.After(time.Now().Add(time.Minute)) {
			t.Errorf("%v, %v; this machine's is %v", now, err, before)
		}
		later, err := db.Now(t.Context())
		if err != nil || later.Before(now) || later.Sub(now) > time.Minute {
			t.Errorf("%v, %v, after %v", later, err, now)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := db.Now(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("with a ctx that has ended: %v", err)
		}
	})
}
