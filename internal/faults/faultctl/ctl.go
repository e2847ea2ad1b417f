package faultctl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"

	"portage/internal/netcut"
)

// Ctl answers the processes of one fleet.
type Ctl struct {
	socket   string
	listener net.Listener
	work     sync.WaitGroup

	mu      sync.Mutex // guards everything below
	armed   []*Halt
	losing  []*LostReply
	failing map[string]string        // "b1 fdatasync": the error every such call reports
	seen    map[string]int           // "b1 point freeze.before": how often
	names   map[string]string        // an address to who listens there
	links   map[string]*netcut.Proxy // "b1 b2": who connects, to whom
}

// Halt is one armed point: the first process of its name that reaches the point, for the nth time from then on, stops.
type Halt struct {
	process, point string
	passes         int           // how often it is let through first
	asked          chan struct{} // closed when the process was told to stop
	pid            int           // after asked
}

// LostReply drops the reply of one call of one process, once.
type LostReply struct {
	process, name string
	lost          chan struct{}
}

// New listens on a socket of its own.
func New() (*Ctl, error) {
	dir, err := os.MkdirTemp("", "portage") // short: the path of a socket is limited to 108 bytes
	if err != nil {
		return nil, err
	}
	c := &Ctl{socket: filepath.Join(dir, "faults"), seen: map[string]int{}, failing: map[string]string{}, names: map[string]string{}, links: map[string]*netcut.Proxy{}}
	if c.listener, err = net.Listen("unix", c.socket); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c.work.Go(c.serve)
	return c, nil
}

// Close ends the socket and every link. Processes that ask from then on go on as the product would.
func (c *Ctl) Close() error {
	err := c.listener.Close()
	c.work.Wait()
	c.mu.Lock()
	links := slices.Collect(maps.Values(c.links))
	c.mu.Unlock()
	for _, link := range links {
		err = errors.Join(err, link.Close())
	}
	return errors.Join(err, os.RemoveAll(filepath.Dir(c.socket)))
}

// Env is what the processes need in their environment.
func (c *Ctl) Env() string { return "PORTAGE_FAULTS_SOCKET=" + c.socket }

func (c *Ctl) serve() {
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
func (c *Ctl) decide(kind, name, process string, pid int) (answer string, then chan struct{}) {
	if kind == "call" {
		return c.failure(process, name), nil
	}
	if kind == "point" {
		reached.add(kind, name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[process+" "+kind+" "+name]++
	switch kind {
	case "point":
		for i, h := range c.armed {
			if (h.process == process || h.process == "") && h.point == name {
				if h.passes > 0 {
					h.passes--
					break
				}
				c.armed = append(c.armed[:i:i], c.armed[i+1:]...)
				h.pid = pid
				return "stop", h.asked
			}
		}
	case "reply":
		for i, l := range c.losing {
			if (l.process == process || l.process == "") && l.name == name {
				c.losing = append(c.losing[:i:i], c.losing[i+1:]...)
				reached.add("lost", name)
				return "lose", l.lost
			}
		}
	case "dial":
		to, known := c.names[name]
		if !known || process == "" {
			return "go", nil
		}
		link, err := c.linkLocked(process, to, name)
		if err != nil {
			panic(fmt.Sprintf("a link from %s to %s: %v", process, to, err))
		}
		return link.Addr(), nil
	}
	return "go", nil
}

// Arm has the first process of that name (of any, when it is empty) that reaches the point stop there, with all its threads.
func (c *Ctl) Arm(process, point string) *Halt { return c.ArmNth(process, point, 1) }

// ArmNth has it stop at the nth time (from 1) it comes there.
func (c *Ctl) ArmNth(process, point string, nth int) *Halt {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &Halt{process: process, point: point, passes: nth - 1, asked: make(chan struct{})}
	c.armed = append(c.armed, h)
	return h
}

func (c *Ctl) failure(process, call string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	errno := c.failing[process+" "+call]
	if errno != "" {
		c.seen[process+" call "+call]++
	}
	return errno
}

// Fail has every such call of that process report an error ("EIO", "ENOSPC") until errno is "".
func (c *Ctl) Fail(process, call, errno string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failing[process+" "+call] = errno
}

// Withdraw takes an armed point back; false when a process was told to stop there already.
func (c *Ctl) Withdraw(h *Halt) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, armed := range c.armed {
		if armed == h {
			c.armed = append(c.armed[:i:i], c.armed[i+1:]...)
			return true
		}
	}
	return false
}

// Disarm forgets what no process has reached, and which calls fail.
func (c *Ctl) Disarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.losing = nil, nil
	clear(c.failing)
}

// Name says who listens at an address, so that connections to it go through a link that can be cut.
func (c *Ctl) Name(who, addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names[addr] = who
}

// Via is the near end of the link by which one process connects to another that listens at addr.
func (c *Ctl) Via(from, to, addr string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	link, err := c.linkLocked(from, to, addr)
	if err != nil {
		return "", err
	}
	return link.Addr(), nil
}

func (c *Ctl) linkLocked(from, to, addr string) (*netcut.Proxy, error) {
	key := from + " " + to
	if link := c.links[key]; link != nil {
		return link, nil
	}
	link, err := netcut.New(addr)
	if err == nil {
		c.links[key] = link
	}
	return link, err
}

// Links names every link there is by its two ends, in order.
func (c *Ctl) Links() [][2]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all [][2]string
	for key := range c.links {
		from, to, _ := strings.Cut(key, " ")
		all = append(all, [2]string{from, to})
	}
	slices.SortFunc(all, func(a, b [2]string) int { return strings.Compare(a[0]+" "+a[1], b[0]+" "+b[1]) })
	return all
}

// Link is the link from one process to another; nil until the first has connected to the second.
func (c *Ctl) Link(from, to string) *netcut.Proxy {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.links[from+" "+to]
}

// Mend opens every link.
func (c *Ctl) Mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, link := range c.links {
		link.Set(netcut.Open)
	}
}

// LoseReply drops the next reply of the named call in that process (in any, when it is empty), after the call took effect.
func (c *Ctl) LoseReply(process, name string) *LostReply {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &LostReply{process: process, name: name, lost: make(chan struct{})}
	c.losing = append(c.losing, l)
	return l
}

// Reached waits until the process stands still at the point.
func (h *Halt) Reached(ctx context.Context) error {
	select {
	case <-h.asked:
	case <-ctx.Done():
		return fmt.Errorf("%s did not reach %s: %w", h.process, h.point, ctx.Err())
	}
	return awaitStopped(h.pid)
}

// Continue lets a stopped process go on from where it stands.
func (h *Halt) Continue() error { return syscall.Kill(h.pid, syscall.SIGCONT) }

// Lost waits until the reply was dropped.
func (l *LostReply) Lost(ctx context.Context) error {
	select {
	case <-l.lost:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s made no %s whose reply could be lost: %w", l.process, l.name, ctx.Err())
	}
}

// Passed reports how often a process passed a point.
func (c *Ctl) Passed(process, point string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[process+" point "+point]
}

// Report lists what was asked, with how often.
func (c *Ctl) Report() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := make([]string, 0, len(c.seen))
	for what, n := range c.seen {
		lines = append(lines, fmt.Sprintf("%s ×%d", what, n))
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

// reached is every point that any process of any fleet of this process came to, and every reply that was lost.
var reached = pointSet{names: map[string]bool{}}

type pointSet struct {
	mu    sync.Mutex
	names map[string]bool // "point freeze.before", "lost CommitOwner"
}

func (s *pointSet) add(kind, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[kind+" "+name] = true
}

// Missing lists those of the names ("point freeze.before", "lost CommitOwner") that never happened.
func Missing(of []string) (missing []string) {
	reached.mu.Lock()
	defer reached.mu.Unlock()
	for _, name := range of {
		if !reached.names[name] {
			missing = append(missing, name)
		}
	}
	return missing
}
