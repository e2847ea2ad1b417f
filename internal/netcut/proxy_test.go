package netcut

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"
)

// echo answers every line with itself.
func echo(t *testing.T) (addr string, lines chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	lines = make(chan string, 100)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				reader := bufio.NewReader(c)
				for {
					line, err := reader.ReadString('\n')
					if err != nil {
						return
					}
					lines <- line
					_, _ = io.WriteString(c, line)
				}
			}()
		}
	}()
	return listener.Addr().String(), lines
}

func link(t *testing.T, target string) *Proxy {
	t.Helper()
	p, err := New(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func dial(t *testing.T, p *Proxy) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, bufio.NewReader(c)
}

func say(t *testing.T, c net.Conn, line string) {
	t.Helper()
	if _, err := io.WriteString(c, line); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	if got, err := r.ReadString('\n'); err != nil || got != want {
		t.Fatalf("heard %q, %v; want %q", got, err, want)
	}
}

// silent fails when something is there to read within a moment in which an open link would have carried it long ago.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Fatal("something came through")
	}
	_ = c.SetReadDeadline(time.Time{})
}

func TestEachModeDoesWhatItSays(t *testing.T) {
	addr, lines := echo(t)
	for _, c := range []struct {
		mode    Mode
		arrives bool // the request, while the link is cut
	}{{BlackHole, false}, {Deaf, false}, {Mute, true}} {
		t.Run(c.mode.String(), func(t *testing.T) {
			p := link(t, addr)
			conn, reader := dial(t, p)
			say(t, conn, "before\n")
			hear(t, reader, "before\n")
			<-lines
			p.Set(c.mode)
			say(t, conn, "during\n")
			silent(t, conn)
			if c.arrives {
				<-lines
			} else if len(lines) > 0 {
				t.Fatal("the request came through")
			}
			p.Set(Open)
			hear(t, reader, "during\n") // late, not lost
			if !c.arrives {
				<-lines
			}
		})
	}
	t.Run("delay", func(t *testing.T) {
		p := link(t, addr)
		p.Set(Slow)
		conn, reader := dial(t, p)
		began := time.Now()
		say(t, conn, "late\n")
		hear(t, reader, "late\n")
		if took := time.Since(began); took < 2*slowBy {
			t.Errorf("it took %v", took)
		}
		<-lines
	})
	t.Run("reset", func(t *testing.T) {
		p := link(t, addr)
		conn, reader := dial(t, p)
		say(t, conn, "before\n")
		hear(t, reader, "before\n")
		<-lines
		p.Set(Reset)
		if _, err := reader.ReadByte(); err == nil || err == io.EOF {
			t.Errorf("the connection ended with %v", err)
		}
		if again, err := net.Dial("tcp", p.Addr()); err == nil { // it may be reset before that returns, or later
			defer again.Close()
			if _, err := again.Read(make([]byte, 1)); err == nil {
				t.Error("a new connection lives")
			}
		}
		p.Set(Open)
		mended, third := dial(t, p)
		say(t, mended, "after\n")
		hear(t, third, "after\n")
		<-lines
	})
}

// A request whose sender gave up while it was held still arrives when the link is mended.
func TestAHeldRequestArrivesAfterItsSenderIsGone(t *testing.T) {
	addr, lines := echo(t)
	p := link(t, addr)
	conn, reader := dial(t, p)
	say(t, conn, "before\n")
	hear(t, reader, "before\n")
	<-lines
	p.Set(BlackHole)
	say(t, conn, "forgotten\n")
	conn.Close()
	p.Set(Open)
	if got := <-lines; got != "forgotten\n" {
		t.Errorf("%q arrived", got)
	}
}

func TestWhatIsSentCanBeHeard(t *testing.T) {
	addr, _ := echo(t)
	p := link(t, addr)
	heard := make(chan string, 1)
	p.Hear(func(_ int, request []byte) { heard <- string(request) })
	conn, reader := dial(t, p)
	say(t, conn, "word\n")
	hear(t, reader, "word\n")
	if got := <-heard; got != "word\n" {
		t.Errorf("heard %q", got)
	}
}
