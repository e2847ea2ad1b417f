package netcut

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Mode is what the link does.
type Mode int

// What a link can do.
const (
	Open      Mode = iota // everything passes
	BlackHole             // nothing passes in either direction, and nobody is told
	Deaf                  // requests do not arrive; answers to earlier ones do
	Mute                  // requests arrive; answers do not
	Slow                  // everything passes late
	Reset                 // every connection breaks at once, new ones too
)

// Cuts are the modes that break a link, in the order tests show them.
var Cuts = []Mode{BlackHole, Deaf, Mute, Slow, Reset}

// String is the mode as tests name it.
func (m Mode) String() string {
	switch m {
	case Open:
		return "open"
	case BlackHole:
		return "black hole"
	case Deaf:
		return "one way in"
	case Mute:
		return "one way out"
	case Slow:
		return "delay"
	case Reset:
		return "reset"
	}
	return fmt.Sprintf("mode %d", int(m))
}

// slowBy is how late each chunk arrives on a slow link, in each direction.
const slowBy = 250 * time.Millisecond

// Proxy is one link. Safe for concurrent use.
type Proxy struct {
	listener net.Listener
	target   string
	work     sync.WaitGroup

	mu      sync.Mutex // guards everything below
	mode    Mode
	changed chan struct{} // closed and replaced when mode changes
	conns   map[net.Conn]struct{}
	heard   func(connection int, request []byte)
	count   int
	closed  bool
}

// New starts a link to target (host:port) on a free port of this machine.
func New(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("netcut: a link to %s: %w", target, err)
	}
	p := &Proxy{listener: listener, target: target, changed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	p.work.Go(p.accept)
	return p, nil
}

// Addr is where the link's near end listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Target is where its far end leads.
func (p *Proxy) Target() string { return p.target }

// Set changes what the link does. After Reset it returns once every connection is broken.
func (p *Proxy) Set(m Mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
	if m == Reset {
		for c := range p.conns {
			breakOff(c)
		}
	}
}

// Hear calls back with everything that is sent towards the target from now on, connection by connection, in order; nil
// ends it.
func (p *Proxy) Hear(heard func(connection int, request []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = heard
}

// Close breaks every connection and ends the link.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.Set(Reset)
	p.work.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (p *Proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.carry(near) })
	}
}

// carry is one connection from its first to its last byte.
func (p *Proxy) carry(near net.Conn) {
	if !p.keep(near) {
		return
	}
	defer p.drop(near)
	if !p.pass(true) { // through a hole nobody connects
		return
	}
	far, err := net.Dial("tcp", p.target)
	if err != nil || !p.keep(far) {
		breakOff(near)
		return
	}
	p.mu.Lock()
	p.count++
	number := p.count
	p.mu.Unlock()
	var back sync.WaitGroup
	back.Go(func() {
		p.pump(near, far, false, number)
		p.drop(far)
		p.drop(near)
	})
	p.pump(far, near, true, number)
	p.drop(far)
	p.drop(near)
	back.Wait()
}

// pump carries one direction until either end closes.
func (p *Proxy) pump(to, from net.Conn, requests bool, number int) {
	chunk := make([]byte, 64<<10)
	for {
		n, err := from.Read(chunk)
		if n > 0 {
			if !p.pass(requests) {
				return
			}
			p.mu.Lock()
			heard := p.heard
			p.mu.Unlock()
			if requests && heard != nil {
				heard(number, chunk[:n])
			}
			if _, err := to.Write(chunk[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if err != io.EOF {
				breakOff(to)
			}
			return
		}
	}
}

// pass waits until the link lets something through in that direction; false when it is broken.
func (p *Proxy) pass(requests bool) bool {
	for {
		p.mu.Lock()
		mode, changed := p.mode, p.changed
		p.mu.Unlock()
		switch {
		case mode == Reset:
			return false
		case mode == Slow:
			select {
			case <-changed:
			case <-time.After(slowBy):
			}
			return true
		case mode == BlackHole, mode == Deaf && requests, mode == Mute && !requests:
			<-changed
		default:
			return true
		}
	}
}

func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == Reset || p.closed {
		breakOff(c)
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// breakOff ends a connection with a reset, not with an orderly end.
func breakOff(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
