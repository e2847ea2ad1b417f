package agenttest

import (
	"testing"

	"portage/internal/netcut"
)

// Proxy is one agent's way to Postgres. While it is cut, connections break at once and new ones are closed.
type Proxy struct{ *netcut.Proxy }

// NewProxy starts a proxy in front of target (host:port).
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	link, err := netcut.New(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := link.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Proxy{link}
}

// Cut breaks every connection; it returns once they are gone, so nothing is on its way any more.
func (p *Proxy) Cut() { p.Set(netcut.Reset) }

// Mend lets connections through again.
func (p *Proxy) Mend() { p.Set(netcut.Open) }
