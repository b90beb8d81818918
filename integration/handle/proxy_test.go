package handle_test

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between a driver and its server. Once armed, it passes on the next
// message of the client that has the needle in it, lets the server carry it out,
// and then either cuts the connection or keeps silent.
type proxy struct {
	listener net.Listener
	server   string
	needle   []byte
	silent   bool
	armed    atomic.Bool
	hit      chan struct{}
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    []net.Conn
}

func newProxy(t *testing.T, server, needle string, silent bool) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, server: server, needle: []byte(needle), silent: silent, hit: make(chan struct{}, 16)}
	p.wg.Go(p.serve)
	t.Cleanup(p.close)
	return p
}

// close cuts every connection.
func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		var doomed atomic.Bool
		p.wg.Go(func() { p.up(client, server, &doomed) })
		p.wg.Go(func() { p.down(client, server, &doomed) })
	}
}

// up copies what the client says.
func (p *proxy) up(client, server net.Conn, doomed *atomic.Bool) {
	defer func() { _ = server.Close() }()
	buf := make([]byte, 1<<16)
	for {
		n, err := client.Read(buf)
		if n > 0 {
			if bytes.Contains(buf[:n], p.needle) && p.armed.CompareAndSwap(true, false) {
				doomed.Store(true)
			}
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// down copies what the server answers, until the answer that is to be lost.
func (p *proxy) down(client, server net.Conn, doomed *atomic.Bool) {
	buf := make([]byte, 1<<16)
	for {
		n, err := server.Read(buf)
		if doomed.Load() {
			p.hit <- struct{}{}
			if p.silent {
				_, _ = io.Copy(io.Discard, server)
				return
			}
			_ = client.Close()
			return
		}
		if n > 0 {
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			_ = client.Close()
			return
		}
	}
}
