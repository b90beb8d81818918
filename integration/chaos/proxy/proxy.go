// Package proxy is a TCP proxy in front of a database server, which a test makes slow, silent, or gone.
package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"
)

// The states of a proxy.
const (
	passing = iota
	// paused: nothing is forwarded, and nothing is read; what was sent waits, and arrives late.
	paused
	// swallowing: what is sent either way vanishes, as behind a cable that was pulled. A connection of which something
	// has vanished is of no use afterwards: Heal closes it.
	swallowing
)

// Proxy forwards connections to one server. It is safe for concurrent use.
type Proxy struct {
	target, addr string

	mu       sync.Mutex
	listener net.Listener // nil: connections are refused
	links    map[*link]struct{}
	state    int
	changed  chan struct{} // closed, and made anew, when state changes
	latency  time.Duration
	faults   func() bool
	watched  *watch
	closed   bool

	work sync.WaitGroup
}

// link is one connection: from the client, and on to the server.
type link struct {
	client, server net.Conn
	once           sync.Once
	spoiled        bool // under Proxy.mu
	mute           bool // under Proxy.mu: the server's next words are the last, and go nowhere
}

func (l *link) cut() {
	l.once.Do(func() {
		for _, c := range []net.Conn{l.client, l.server} {
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // reset, as a server that is gone would
			}
			_ = c.Close()
		}
	})
}

// watch is a word of the client's, behind which the answer is to be cut off.
type watch struct {
	words [][]byte
	seen  chan struct{}
}

// New starts a proxy in front of target, host:port.
func New(target string) (*Proxy, error) {
	p := &Proxy{target: target, links: map[*link]struct{}{}, changed: make(chan struct{})}
	// Below the ports of outgoing connections: nobody else gets it while it is refused.
	var err error
	for range 50 {
		p.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(15000+rand.IntN(5000)))
		if err = p.listen(); err == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("proxy: no free port: %w", err)
}

// Addr is where clients connect to.
func (p *Proxy) Addr() string { return p.addr }

// listen needs nobody else to listen already.
func (p *Proxy) listen() error {
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.listener != nil {
		return errors.Join(net.ErrClosed, l.Close())
	}
	p.listener = l
	p.work.Go(func() { p.serve(l) })
	return nil
}

func (p *Proxy) serve(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.carry(client) })
	}
}

func (p *Proxy) carry(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		return
	}
	l := &link{client: client, server: server}
	defer l.cut()
	p.mu.Lock()
	refused := p.closed || p.listener == nil
	if !refused {
		p.links[l] = struct{}{}
	}
	p.mu.Unlock()
	if refused {
		return
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	}()
	back := make(chan struct{})
	go func() {
		defer close(back)
		p.pump(l, server, client, false)
	}()
	p.pump(l, client, server, true)
	<-back
}

// pump forwards one direction until the connection ends.
func (p *Proxy) pump(l *link, from, to net.Conn, toServer bool) {
	defer l.cut() // one direction is of no use
	buf := make([]byte, 64<<10)
	for {
		if !p.wait() {
			return
		}
		n, err := from.Read(buf)
		if n > 0 && !p.forward(l, to, buf[:n], toServer) {
			return
		}
		if err != nil {
			return
		}
	}
}

// wait returns when the proxy is not paused; false if it was closed.
func (p *Proxy) wait() bool {
	for {
		p.mu.Lock()
		state, changed, closed := p.state, p.changed, p.closed
		p.mu.Unlock()
		if closed || state != paused {
			return !closed
		}
		<-changed
	}
}

// forward does with some bytes what the state says; false ends the connection.
func (p *Proxy) forward(l *link, to net.Conn, b []byte, toServer bool) bool {
	if !p.wait() {
		return false
	}
	p.mu.Lock()
	latency, faults := p.latency, p.faults
	swallow := p.state == swallowing
	l.spoiled = l.spoiled || swallow
	if l.spoiled { // something is missing: what follows would make no sense
		p.mu.Unlock()
		return true
	}
	if !toServer && l.mute {
		w := p.watched
		p.watched = nil
		p.mu.Unlock()
		if w != nil {
			close(w.seen)
		}
		return false
	}
	if w := p.watched; toServer && w != nil {
		for _, word := range w.words {
			l.mute = l.mute || bytes.Contains(b, word)
		}
	}
	p.mu.Unlock()
	if latency > 0 {
		time.Sleep(latency/2 + rand.N(latency))
	}
	if faults != nil && faults() {
		return false
	}
	_, err := to.Write(b)
	return err == nil
}

func (p *Proxy) become(state int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = state
	close(p.changed)
	p.changed = make(chan struct{})
}

// Pause stops forwarding. What is sent meanwhile arrives after Heal.
func (p *Proxy) Pause() { p.become(paused) }

// Swallow lets everything vanish, without a packet to tell of it. New connections are taken and get no answer.
func (p *Proxy) Swallow() { p.become(swallowing) }

// SwallowOld lets what goes over the present connections vanish; new ones work.
func (p *Proxy) SwallowOld() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.spoiled = true
	}
}

// Refuse closes all connections and refuses new ones, as a server that is gone.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.mu.Unlock()
	p.CutAll()
}

// CutAll closes all connections; new ones work.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// Heal makes everything work again.
func (p *Proxy) Heal() error {
	p.become(passing)
	p.mu.Lock()
	for l := range p.links {
		if l.spoiled {
			l.cut()
		}
	}
	listening := p.listener != nil
	p.mu.Unlock()
	if listening {
		return nil
	}
	return p.listen()
}

// Latency makes everything take about d longer, each way.
func (p *Proxy) Latency(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
}

// Faults asks f at every packet whether the connection is to be cut there. nil: never.
func (p *Proxy) Faults(f func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = f
}

// CutAnswer cuts, once, the answer to the next packet of a client's in which one of the words stands: the server has
// done what it was asked, and the client never hears of it. The channel is closed when that has happened.
func (p *Proxy) CutAnswer(words ...[]byte) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watched = &watch{words: words, seen: make(chan struct{})}
	return p.watched.seen
}

// Close ends the proxy, and returns when nothing of it is left.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Refuse()
	p.become(passing)
	p.work.Wait()
}
