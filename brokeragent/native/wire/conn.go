package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"time"
)

// conn is one client connection: a reader that frames requests into the queue, and a processor that handles them one
// after the other.
type conn struct {
	srv   *Server
	id    ConnID
	nc    net.Conn
	log   *slog.Logger
	queue *frameQueue

	// work ends when the connection is aborted. poll ends with it and also when nothing more will be read (the client
	// has gone, the server is stopping): whoever waits for more than what was asked waits under poll.
	work, poll context.Context
	abortWork  context.CancelFunc
	endPoll    context.CancelFunc
}

func newConn(s *Server, nc net.Conn, id ConnID) *conn {
	c := &conn{
		srv:   s,
		id:    id,
		nc:    nc,
		log:   s.log.With("conn", uint64(id), "client", nc.RemoteAddr().String()),
		queue: newFrameQueue(s.opts.MaxQueuedRequests, s.opts.MaxQueuedBytes),
	}
	c.work, c.abortWork = context.WithCancel(context.Background())
	c.poll, c.endPoll = context.WithCancel(c.work)
	return c
}

// run returns once both goroutines are done and the connection is closed.
func (c *conn) run() {
	defer c.abort()
	readerDone := make(chan struct{})
	go func() {
		defer close(readerDone)
		defer c.stopReading()
		c.guard("reader", c.read)
	}()
	if ranDry := c.guard("processor", c.process); ranDry {
		<-readerDone
		c.linger()
	}
	c.abort()
	<-readerDone
}

// linger takes leave of a client that may still be sending: closing with bytes unread would reset the connection, and a
// reset may overtake the last answers.
func (c *conn) linger() {
	const leave = 500 * time.Millisecond
	if half, ok := c.nc.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		c.nc.SetReadDeadline(time.Now().Add(leave))
		io.Copy(io.Discard, c.nc)
	}
}

// stopReading lets what was read be handled, and ends long polls.
func (c *conn) stopReading() {
	c.queue.close()
	c.endPoll()
	c.nc.SetReadDeadline(time.Unix(1, 0))
}

// abort ends the connection at once, together with the request in hand.
func (c *conn) abort() {
	c.abortWork()
	c.queue.close()
	c.nc.Close()
}

// guard runs one half of the connection and says whether it ended well. A panic in it is a defect, but one that must not take the broker's other
// clients along.
func (c *conn) guard(half string, run func() error) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("panic while serving a connection; closing it", "half", half, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			c.abort()
		}
	}()
	if err := run(); err != nil {
		c.log.Debug("closing connection", "half", half, "reason", err)
		return false
	}
	return true
}

// read frames requests until the client leaves, misbehaves or the queue is closed.
func (c *conn) read() error {
	for {
		size, key, err := c.readStart()
		if err != nil {
			return err
		}
		if !c.queue.claim(size) {
			return errors.New("connection is ending")
		}
		body, err := c.readBody(size, key)
		if err != nil {
			return fmt.Errorf("read a request of %d bytes: %w", size, err)
		}
		c.queue.push(frame{bytes: body, arrived: time.Now()})
	}
}

var (
	errIdle     = errors.New("idle for too long")
	errStopping = errors.New("server is stopping")
)

// readStart reads the size and the API key of the next request, and checks the one against the other: only Produce may
// be large. Idle time counts only while no request is in hand.
func (c *conn) readStart() (size int, key [2]byte, err error) {
	var start [6]byte
	for got := 0; got < len(start); {
		n, err := c.readBefore(start[got:], c.srv.opts.IdleTimeout)
		got += n
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && c.poll.Err() == nil:
			if !c.queue.busy() {
				return 0, key, errIdle
			}
		case got > 0 && errors.Is(err, io.EOF):
			return 0, key, io.ErrUnexpectedEOF
		default:
			return 0, key, err
		}
	}
	claimed := int32(binary.BigEndian.Uint32(start[:]))
	key = [2]byte(start[4:])
	most := c.srv.opts.MaxOtherBytes
	if binary.BigEndian.Uint16(key[:]) == produceKey {
		most = c.srv.opts.MaxRequestBytes
	}
	if int(claimed) < headerBytes || int64(claimed) > int64(most) {
		return 0, key, fmt.Errorf("request size %d (key %d) is not within %d and %d", claimed, int16(binary.BigEndian.Uint16(key[:])), headerBytes, most)
	}
	return int(claimed), key, nil
}

// readBody reads the rest of a request. Memory grows with what arrives, not with what the size claims.
func (c *conn) readBody(size int, key [2]byte) ([]byte, error) {
	const firstChunk = 1 << 20
	body := make([]byte, len(key), min(size, firstChunk))
	copy(body, key[:])
	for len(body) < size {
		if len(body) == cap(body) {
			grown := make([]byte, len(body), min(size, 2*cap(body)))
			copy(grown, body)
			body = grown
		}
		n, err := c.readBefore(body[len(body):cap(body)], c.srv.opts.IdleTimeout)
		body = body[:len(body)+n]
		if err != nil && len(body) < size {
			return nil, err
		}
	}
	return body, nil
}

// readBefore reads something within the timeout. The deadline is set under the rule that stopReading, which may come at
// any moment, must win.
func (c *conn) readBefore(b []byte, timeout time.Duration) (int, error) {
	c.nc.SetReadDeadline(time.Now().Add(timeout))
	if c.poll.Err() != nil {
		return 0, errStopping
	}
	return c.nc.Read(b)
}

// process handles the queued requests in order until there are no more.
func (c *conn) process() error {
	for {
		f, ok := c.queue.pop()
		if !ok {
			return nil
		}
		if err := c.serve(f); err != nil {
			return err
		}
		c.queue.release(len(f.bytes))
	}
}

// serve handles one request and writes its answer. An error closes the connection.
func (c *conn) serve(f frame) error {
	began := time.Now()
	h, err := f.header()
	if err != nil {
		return err
	}
	resp, sizeHint, err := c.answer(f, h)
	if err != nil {
		return fmt.Errorf("request key %d version %d: %w", h.key, h.version, err)
	}
	written := 0
	if resp != nil {
		out := encode(h, resp, sizeHint)
		written = len(out)
		if err := c.write(out); err != nil {
			return fmt.Errorf("answer request key %d version %d: %w", h.key, h.version, err)
		}
	}
	c.srv.opts.Metrics.RequestHandled(h.key, h.version, len(f.bytes)+4, written, began.Sub(f.arrived), time.Since(began))
	return nil
}

// write sends an answer piece by piece, so that a slow client is told from one that takes nothing.
func (c *conn) write(out []byte) error {
	const piece = 256 << 10
	for len(out) > 0 {
		n := min(piece, len(out))
		c.nc.SetWriteDeadline(time.Now().Add(c.srv.opts.WriteTimeout))
		if _, err := c.nc.Write(out[:n]); err != nil {
			return err
		}
		out = out[n:]
	}
	return nil
}
