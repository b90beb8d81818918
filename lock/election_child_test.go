package lock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// seat is the table in which the leaders of a test write, in one row: who leads, in which
// term, and under which token. twice counts what must not be: a leader that found
// another in its seat, and still led.
const seat = "CREATE TABLE seat (leader INT NOT NULL, term INT NOT NULL, token BIGINT NOT NULL, beats INT NOT NULL, twice INT NOT NULL, plain INT NOT NULL, guarded INT NOT NULL)"

// candidate is a process that campaigns until SIGTERM comes.
type candidate struct {
	me      int
	db      *sqldb.DB
	guarded bool // its strategy has Guard
	orders  chan string
	quiet   sync.Mutex // held by a beat
}

// campaignChild is the process: its arguments are kind, strategy, DSN, number, TTL and the
// name of the election. It says "campaigns", "leads TOKEN" in each term, "ended CAUSE"
// when the ctx of that has ended, and "shut down" when Run has returned so. What its
// stdin says is done by the leader, see obey.
func campaignChild(args []string) int {
	fail := func(err error) int {
		fmt.Println("error", err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c := &candidate{guarded: args[1] == "sqllock", orders: make(chan string)}
	var err error
	if c.me, err = strconv.Atoi(args[3]); err != nil {
		return fail(err)
	}
	ttl, err := time.ParseDuration(args[4])
	if err != nil {
		return fail(err)
	}
	if c.db, _, err = dbtest.Open(ctx, args[0], args[2]); err != nil {
		return fail(err)
	}
	var locker lock.Locker
	if c.guarded {
		locker, err = sqllock.New(ctx, c.db)
	} else {
		locker, err = advisory.New(ctx, c.db)
	}
	if err != nil {
		return fail(err)
	}
	e, err := lock.NewElection(locker, args[5], lock.TTL(ttl))
	if err != nil {
		return fail(err)
	}
	go func() {
		for s := bufio.NewScanner(os.Stdin); s.Scan(); {
			c.orders <- s.Text()
		}
	}()
	fmt.Println("campaigns")
	err = e.Run(ctx, func(ctx context.Context, l *lock.Lock) error { return c.lead(ctx, e, l) })
	if !errors.Is(err, context.Canceled) || e.IsLeader() {
		return fail(err)
	}
	fmt.Println("shut down")
	_ = locker.Close()
	return 0
}

// lead takes the seat and leads until it is told to return, or its ctx ends and nobody has
// told it to stay.
func (c *candidate) lead(ctx context.Context, e *lock.Election, l *lock.Lock) error {
	taken := fmt.Sprintf("UPDATE seat SET leader = %d, term = term + 1, token = %d", c.me, l.Token())
	if _, err := c.write(ctx, l, taken); err != nil {
		if errors.Is(err, lock.ErrLost) {
			return err
		}
		return fmt.Errorf("take the seat: %w", err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	over := make(chan struct{})
	defer close(over)
	wg.Go(func() {
		for leads := true; leads; {
			c.quiet.Lock()
			leads = c.beat(e, l)
			c.quiet.Unlock()
			select {
			case <-over:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	fmt.Println("leads", l.Token())
	done := ctx.Done()
	for {
		select {
		case order := <-c.orders:
			switch order {
			case "stay":
				// It is not to be stopped in a guarded transaction, which would pin the lock.
				c.quiet.Lock()
				done = nil
				fmt.Println("stays")
			case "go on":
				c.beat(e, l)
				c.quiet.Unlock()
				fmt.Println("goes on")
			case "return":
				return ctx.Err()
			default:
				c.obey(ctx, e, l, order)
			}
		case <-done:
			fmt.Println("ended", context.Cause(ctx))
			return nil
		}
	}
}

// obey does what the test says: "check" looks whether it leads, and whether its ctx lives;
// "plain" and "guarded" count themselves in the seat.
func (c *candidate) obey(ctx context.Context, e *lock.Election, l *lock.Lock, order string) {
	var err error
	switch order {
	case "check":
		<-ctx.Done() // it is to end
		err = context.Cause(ctx)
		if e.IsLeader() {
			err = errors.New("it says that it leads")
		}
	case "plain":
		_, err = c.db.Exec(context.Background(), "UPDATE seat SET plain = plain + 1")
	case "guarded":
		_, err = c.write(context.Background(), l, "UPDATE seat SET guarded = guarded + 1")
	}
	switch {
	case errors.Is(err, lock.ErrLost):
		fmt.Println(order, "lost")
	case err != nil:
		fmt.Println(order, "error", err)
	default:
		fmt.Println(order, "done")
	}
}

// write runs one statement, under a guard if there is one, and returns how many rows it
// has changed.
func (c *candidate) write(ctx context.Context, l *lock.Lock, query string) (n int64, err error) {
	err = sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) error {
		return c.db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			if c.guarded {
				if err := l.Guard(ctx, tx); err != nil {
					return err
				}
			}
			r, err := tx.Exec(ctx, query)
			n = r.RowsAffected
			return err
		})
	})
	return n, err
}

// beat writes to the seat if it is its own; false: the lock is lost. If it is another's, and
// this process still leads afterwards, there were two leaders at once: with a guard, if the
// guarded write found another; without one, if the lock is not lost when that has been
// seen.
func (c *candidate) beat(e *lock.Election, l *lock.Lock) bool {
	ctx := context.Background()
	n, err := c.write(ctx, l, fmt.Sprintf("UPDATE seat SET beats = beats + 1 WHERE leader = %d", c.me))
	switch {
	case errors.Is(err, lock.ErrLost):
		return false
	case err != nil:
		fmt.Fprintln(os.Stderr, "beat:", err)
	case n == 0 && (c.guarded || e.IsLeader() && l.Err() == nil):
		if _, err := c.db.Exec(ctx, "UPDATE seat SET twice = twice + 1"); err != nil {
			fmt.Fprintln(os.Stderr, "twice:", err)
		}
	}
	return true
}
