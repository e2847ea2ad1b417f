package agenttest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy is one agent's way to Postgres. While it is cut, connections break at once and new ones are closed.
type Proxy struct {
	listener net.Listener
	target   string
	work     sync.WaitGroup

	mu    sync.Mutex // guards everything below
	cut   bool
	conns map[net.Conn]struct{}
}

// NewProxy starts a proxy in front of target (host:port).
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: listener, target: target, conns: map[net.Conn]struct{}{}}
	p.work.Go(p.accept)
	t.Cleanup(func() {
		listener.Close()
		p.Cut()
		p.work.Wait()
	})
	return p
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut breaks every connection; it returns once they are gone, so nothing is on its way any more.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for c := range p.conns {
		c.Close()
	}
}

// Mend lets connections through again.
func (p *Proxy) Mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

func (p *Proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		if !p.keep(in) {
			continue
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil || !p.keep(out) {
			p.drop(in)
			continue
		}
		for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
			p.work.Go(func() {
				_, _ = io.Copy(way[1], way[0])
				p.drop(way[0])
				p.drop(way[1])
			})
		}
	}
}

func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}
