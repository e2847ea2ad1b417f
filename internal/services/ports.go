package services

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
)

// Ports are drawn from below the range that systems hand to outgoing connections (32768 and up on
// Linux, 49152 and up elsewhere). A port inside that range can be taken by any client while a
// killed service is down, and a client that keeps dialling a dead port inside it sooner or later
// connects to itself.
const (
	lowestPort  = 20000
	portsToDraw = 12000
)

// drawn counts the ports that this process has drawn, from a place of its own on. A port comes again only after all others:
// what was drawn a moment ago and is not bound yet, or belongs to a service that is down for now, looks free.
var drawn atomic.Uint64

func init() { drawn.Store(rand.Uint64N(portsToDraw)) }

// FreePort returns a TCP port that was free on 127.0.0.1 a moment ago.
func FreePort() (int, error) {
	ports, err := FreePorts(1)
	if err != nil {
		return 0, err
	}
	return ports[0], nil
}

// FreePorts returns n different ports that were free on 127.0.0.1 a moment ago.
func FreePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for attempt := 0; len(ports) < n; attempt++ {
		if attempt > 1000+n {
			return nil, fmt.Errorf("no %d free ports found on 127.0.0.1 between %d and %d: stop what uses them", n, lowestPort, lowestPort+portsToDraw-1)
		}
		port := lowestPort + int(drawn.Add(1)%portsToDraw)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		// Held until all are found, so that no port is drawn twice.
		defer listener.Close()
		ports = append(ports, port)
	}
	return ports, nil
}
