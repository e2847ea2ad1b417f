package wire

import "sync"

// frameQueue holds the requests of one connection that wait for the one in hand. Its bound is counted in requests and
// bytes together with the one in hand, and is claimed before a body is read, so that a client cannot make the server
// hold more than that.
type frameQueue struct {
	maxFrames, maxBytes int

	mu     sync.Mutex // guards: frames, held, bytes, closed
	change sync.Cond
	frames []frame
	held   int // claimed and not yet released: being read, queued or in hand
	bytes  int // bytes of the held
	closed bool
}

func newFrameQueue(maxFrames, maxBytes int) *frameQueue {
	q := &frameQueue{maxFrames: maxFrames, maxBytes: maxBytes}
	q.change.L = &q.mu
	return q
}

// claim waits for room for one request of so many bytes; false when the queue was closed meanwhile. A request alone
// always has room, whatever its size.
func (q *frameQueue) claim(bytes int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed && q.held > 0 && (q.held >= q.maxFrames || q.bytes+bytes > q.maxBytes) {
		q.change.Wait()
	}
	if q.closed {
		return false
	}
	q.held++
	q.bytes += bytes
	return true
}

// push hands over a request whose room was claimed.
func (q *frameQueue) push(f frame) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.frames = append(q.frames, f)
	q.change.Broadcast()
}

// pop waits for the next request; false once the queue is closed and empty.
func (q *frameQueue) pop() (frame, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.frames) == 0 && !q.closed {
		q.change.Wait()
	}
	if len(q.frames) == 0 {
		return frame{}, false
	}
	f := q.frames[0]
	q.frames[0] = frame{}
	q.frames = q.frames[1:]
	return f, true
}

// release gives back the room of a request that was answered.
func (q *frameQueue) release(bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held--
	q.bytes -= bytes
	q.change.Broadcast()
}

// busy says whether a request is queued, in hand or being read.
func (q *frameQueue) busy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.held > 0
}

// close ends claims; requests already pushed can still be popped.
func (q *frameQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.change.Broadcast()
}
