package sqllock_test

import (
	"context"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/lock/locktest"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// proxy stands between a pool and its server. While it is cut no byte passes, and
// nobody is told, as with a cable that is pulled; what was sent meanwhile arrives
// when it is whole again.
type proxy struct {
	ln     net.Listener
	target string
	tasks  sync.WaitGroup

	mu     sync.Mutex
	moved  *sync.Cond
	cut    bool
	closed bool
	conns  []net.Conn
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, target: target}
	p.moved = sync.NewCond(&p.mu)
	p.tasks.Go(p.serve)
	t.Cleanup(func() {
		_ = ln.Close()
		p.mu.Lock()
		p.closed = true
		p.moved.Broadcast()
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.tasks.Wait()
	})
	return p
}

func (p *proxy) serve() {
	for {
		in, err := p.ln.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, in, out)
		if p.closed {
			_, _ = in.Close(), out.Close()
		}
		p.mu.Unlock()
		p.tasks.Go(func() { p.copy(in, out) })
		p.tasks.Go(func() { p.copy(out, in) })
	}
}

func (p *proxy) copy(dst, src net.Conn) {
	defer func() { _, _ = dst.Close(), src.Close() }()
	b := make([]byte, 32<<10)
	for {
		n, err := src.Read(b)
		p.mu.Lock()
		for p.cut && !p.closed { // an end is not passed on either
			p.moved.Wait()
		}
		p.mu.Unlock()
		if n > 0 {
			if _, err := dst.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) set(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	p.moved.Broadcast()
}

// through is db, reached through the proxy that it makes.
func through(t testing.TB, db *dbtest.DB) (*dbtest.DB, *proxy) {
	t.Helper()
	other := *db
	if db.Kind() == sqldb.Postgres {
		u, err := url.Parse(db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		p := newProxy(t, u.Host)
		u.Host = p.ln.Addr().String()
		other.DSN = u.String()
		return other.Another(t), p
	}
	cfg, err := mysql.ParseDSN(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, cfg.Addr)
	cfg.Addr = p.ln.Addr().String()
	other.DSN = cfg.FormatDSN()
	return other.Another(t), p
}

// A holder that is cut off without a packet.
func TestConformanceCutOff(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := subject(t, db)
		var mu sync.Mutex
		proxies := map[lock.Locker]*proxy{}
		s.New = func(t testing.TB, opts ...lock.Option) lock.Locker {
			t.Helper()
			other, p := through(t, db)
			l, err := sqllock.New(context.Background(), other.DB, opts...)
			if err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			proxies[l] = p
			return l
		}
		s.Faults = []locktest.Fault{{Name: "cut off", Silent: true, Break: func(_ testing.TB, l lock.Locker) func() {
			mu.Lock()
			defer mu.Unlock()
			p := proxies[l]
			p.set(true)
			return func() { p.set(false) }
		}}}
		s.Only = []string{"Faults"}
		locktest.Run(t, s)
	})
}
