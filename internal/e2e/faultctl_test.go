package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// faultctl answers the processes of one fleet that reach a crash point (internal/faults): go on, stop, or lose the reply.
type faultctl struct {
	socket   string
	listener net.Listener
	work     sync.WaitGroup

	mu      sync.Mutex // guards everything below
	armed   []*halt
	losing  []*lostReply
	failing map[string]string // "b1 fdatasync": the error every such call reports
	seen    map[string]int    // "b1 freeze.before": how often
}

// halt is one armed point. The first process of its name that reaches the point stops there.
type halt struct {
	process, point string
	asked          chan struct{} // closed when the process was told to stop
	pid            int           // after asked
}

// lostReply drops the reply of one call of one process, once.
type lostReply struct {
	process, name string
	lost          chan struct{}
}

func newFaultctl(t testing.TB) *faultctl {
	t.Helper()
	dir, err := os.MkdirTemp("", "portage") // short: the path of a socket is limited to 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	c := &faultctl{socket: filepath.Join(dir, "faults"), seen: map[string]int{}, failing: map[string]string{}}
	if c.listener, err = net.Listen("unix", c.socket); err != nil {
		t.Fatal(err)
	}
	c.work.Go(c.serve)
	t.Cleanup(func() {
		_ = c.listener.Close()
		c.work.Wait()
		_ = os.RemoveAll(dir)
		if t.Failed() {
			t.Logf("points and replies seen:\n%s", c.report())
		}
	})
	return c
}

func (c *faultctl) env() string { return "PORTAGE_FAULTS_SOCKET=" + c.socket }

func (c *faultctl) serve() {
	for {
		conn, err := c.listener.Accept()
		if err != nil {
			return
		}
		c.work.Go(func() {
			defer conn.Close()
			line, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil {
				return // killed while asking
			}
			var kind, name, process string
			var pid int
			if _, err := fmt.Sscan(line, &kind, &name, &process, &pid); err != nil {
				panic(fmt.Sprintf("a crash point asks %q: %v", line, err))
			}
			answer, then := c.decide(kind, name, process, pid)
			fmt.Fprintln(conn, answer)
			if then != nil {
				close(then)
			}
		})
	}
}

// decide answers one question; then, when not nil, is to be closed once the answer was given.
func (c *faultctl) decide(kind, name, process string, pid int) (answer string, then chan struct{}) {
	if kind == "call" {
		return c.failure(process, name), nil
	}
	reached.add(kind, name)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[process+" "+kind+" "+name]++
	switch kind {
	case "point":
		for i, h := range c.armed {
			if h.process == process && h.point == name {
				c.armed = append(c.armed[:i:i], c.armed[i+1:]...)
				h.pid = pid
				return "stop", h.asked
			}
		}
	case "reply":
		for i, l := range c.losing {
			if l.process == process && l.name == name {
				c.losing = append(c.losing[:i:i], c.losing[i+1:]...)
				return "lose", l.lost
			}
		}
	}
	return "go", nil
}

func (c *faultctl) failure(process, call string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	errno := c.failing[process+" "+call]
	if errno != "" {
		c.seen[process+" call "+call]++
	}
	return errno
}

// Fail has every such call of that process report an error ("EIO", "ENOSPC") until errno is "".
func (c *faultctl) Fail(process, call, errno string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failing[process+" "+call] = errno
}

// Arm has the first process of that name that reaches the point stop there, with all its threads.
func (c *faultctl) Arm(process, point string) *halt {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &halt{process: process, point: point, asked: make(chan struct{})}
	c.armed = append(c.armed, h)
	return h
}

// LoseReply drops the next reply of the named call in that process, after the call took effect.
func (c *faultctl) LoseReply(process, name string) *lostReply {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &lostReply{process: process, name: name, lost: make(chan struct{})}
	c.losing = append(c.losing, l)
	return l
}

// Reached waits until the process stands still at the point.
func (h *halt) Reached(ctx context.Context) error {
	select {
	case <-h.asked:
	case <-ctx.Done():
		return fmt.Errorf("%s did not reach %s: %w", h.process, h.point, ctx.Err())
	}
	// It has its answer and stops itself; as its parent we hear of it. It can not be killed in between by anyone else.
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, h.pid, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err
		}
	}
}

// Continue lets a stopped process go on from where it stands.
func (h *halt) Continue() error { return syscall.Kill(h.pid, syscall.SIGCONT) }

// Lost waits until the reply was dropped.
func (l *lostReply) Lost(ctx context.Context) error {
	select {
	case <-l.lost:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s made no %s whose reply could be lost: %w", l.process, l.name, ctx.Err())
	}
}

// passed reports how often a process passed a point.
func (c *faultctl) passed(process, point string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[process+" point "+point]
}

func (c *faultctl) report() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := make([]string, 0, len(c.seen))
	for what, n := range c.seen {
		lines = append(lines, fmt.Sprintf("%s ×%d", what, n))
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

// reached is every point and reply that any process of any test asked about.
var reached = pointSet{names: map[string]bool{}}

type pointSet struct {
	mu    sync.Mutex
	names map[string]bool // "point freeze.before", "reply CommitOwner"
}

func (s *pointSet) add(kind, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[kind+" "+name] = true
}

func (s *pointSet) missing(of []string) (missing []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range of {
		if !s.names[name] {
			missing = append(missing, name)
		}
	}
	return missing
}
