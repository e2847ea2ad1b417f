//go:build portage_faults

package faults

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Built reports whether this binary carries crash points.
const Built = true

var (
	rulesOnce sync.Once
	rulesMu   sync.RWMutex
	rulesOff  = map[string]bool{}
)

// Enforced reports whether a safety rule ("R7") is in force.
func Enforced(rule string) bool {
	rulesOnce.Do(func() {
		for _, name := range strings.Split(os.Getenv("PORTAGE_RULES_OFF"), ",") {
			if name != "" {
				SetRule(name, false)
			}
		}
	})
	rulesMu.RLock()
	defer rulesMu.RUnlock()
	return !rulesOff[rule]
}

// SetRule switches one rule on or off in this process.
func SetRule(rule string, enforced bool) {
	rulesMu.Lock()
	defer rulesMu.Unlock()
	rulesOff[rule] = !enforced
}

// Point tells the test that this place was reached and stops the process here when the test says so.
func Point(name string) {
	if ask("point", name) == "stop" {
		// Every thread stops; the test kills (-9) or continues the process from outside.
		if err := stop(); err != nil {
			panic(fmt.Sprintf("faults: stop at %s: %v", name, err))
		}
	}
}

// LoseReply reports whether the reply of the named call is to be dropped after the call took effect.
func LoseReply(name string) bool { return ask("reply", name) == "lose" }

// Fail is an error that the named call to the operating system is to report in place of being made, nil to make it.
func Fail(name string) error {
	switch errno := ask("call", name); errno {
	case "EIO":
		return unix.EIO
	case "ENOSPC":
		return unix.ENOSPC
	default:
		return nil
	}
}

// Dial returns the address to connect to instead of addr: the test puts a link of its own between two processes.
func Dial(addr string) string {
	if link := ask("dial", addr); strings.Contains(link, ":") {
		return link
	}
	return addr
}

// ask opens one short connection per question: "<kind> <name> <process> <pid>\n" → one word.
func ask(kind, name string) string {
	socket := os.Getenv("PORTAGE_FAULTS_SOCKET")
	if socket == "" {
		return ""
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return "" // the test is gone: go on as the product would
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s %s %s %d\n", kind, name, os.Getenv("PORTAGE_PROCESS"), os.Getpid())
	answer, _ := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(answer)
}
