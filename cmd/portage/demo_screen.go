package main

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// screen prints a story: lines that stay and, on a terminal, lines below them that are redrawn.
type screen struct {
	terminal bool

	mu   sync.Mutex // guards live
	live int        // lines that the next print replaces
}

func newScreen() *screen { return &screen{terminal: term.IsTerminal(int(os.Stdout.Fd()))} }

// say prints a line that stays.
func (s *screen) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	fmt.Printf(format+"\n", args...)
}

// show redraws the live lines; when piped it does nothing.
func (s *screen) show(lines ...string) {
	if !s.terminal {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	for _, line := range lines {
		fmt.Println(clip(line, terminalWidth()))
	}
	s.live = len(lines)
}

func (s *screen) erase() {
	if s.live > 0 {
		fmt.Printf("\033[%dA\033[J", s.live)
		s.live = 0
	}
}

// rows prints names and values in two columns.
func (s *screen) rows(pairs ...[2]string) {
	width := 0
	for _, p := range pairs {
		width = max(width, len(p[0]))
	}
	for _, p := range pairs {
		s.say("  %s  %s", p[0]+strings.Repeat(" ", width-len(p[0])), p[1])
	}
}
