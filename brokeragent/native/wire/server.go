package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Server serves the Kafka protocol on any number of listeners in front of one Broker.
type Server struct {
	broker Broker
	opts   Options
	log    *slog.Logger
	apis   map[int16]api

	stopping chan struct{} // closed once by Shutdown or a cancelled Serve
	lastConn atomic.Uint64
	running  sync.WaitGroup // one for each connection
	counted  atomic.Int64   // producer ids, in tests that switch R26 off

	mu        sync.Mutex // guards: listeners, conns, stopped
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	stopped   bool
}

// NewServer builds a server; Serve starts it.
func NewServer(b Broker, opts Options) *Server {
	opts = opts.withDefaults()
	return &Server{
		broker:    b,
		opts:      opts,
		log:       opts.Logger,
		apis:      supportedAPIs(),
		stopping:  make(chan struct{}),
		listeners: map[net.Listener]struct{}{},
		conns:     map[*conn]struct{}{},
	}
}

// Serve accepts connections until ctx ends, Shutdown is called or the listener fails; it always closes the listener.
// When ctx ends the whole server stops at once: every connection is closed, requests in hand are cancelled, and Serve
// returns when they are gone. After Shutdown it returns nil at once; Shutdown does the waiting.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	defer ln.Close()
	if !s.addListener(ln) {
		return nil
	}
	defer s.removeListener(ln)
	cancelled := context.AfterFunc(ctx, s.stopNow)
	defer cancelled()

	for backoff := time.Duration(0); ; {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			backoff = 0
			s.start(nc)
		case ctx.Err() != nil:
			s.stopNow()
			s.running.Wait()
			return nil
		case s.isStopping():
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept on %s: %w", ln.Addr(), err)
		default: // out of descriptors, a connection reset before it was accepted: passing troubles
			backoff = min(max(2*backoff, 5*time.Millisecond), time.Second)
			s.log.Warn("cannot accept a connection", "listener", ln.Addr().String(), "error", err, "retry_in", backoff)
			select {
			case <-time.After(backoff):
			case <-s.stopping:
			}
		}
	}
}

// Shutdown stops accepting and reading, wakes long polls and lets every request already read finish and be answered. It
// returns nil when the last connection is closed. When ctx ends first it cancels and closes what is left, waits for
// that, and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.stopNow()
		<-done
		return ctx.Err()
	}
}

func (s *Server) isStopping() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

// stop closes the listeners and lets every connection run dry.
func (s *Server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.stopped = true
		close(s.stopping)
	}
	for ln := range s.listeners {
		ln.Close()
	}
	for c := range s.conns {
		c.stopReading()
	}
}

func (s *Server) stopNow() {
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.abort()
	}
}

func (s *Server) addListener(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.listeners[ln] = struct{}{}
	}
	return !s.stopped
}

func (s *Server) removeListener(ln net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, ln)
}

func (s *Server) start(nc net.Conn) {
	c := newConn(s, nc, ConnID(s.lastConn.Add(1)))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		nc.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.running.Add(1)
	s.opts.Metrics.ConnectionOpened()
	go func() {
		defer s.running.Done()
		defer s.opts.Metrics.ConnectionClosed()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.conns, c)
		}()
		c.run()
	}()
}
