package wire

import (
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// FuzzRequest feeds whole requests to a connection's dispatch, past its recover: nothing may panic, and every answer must
// decode at the version it was asked for.
func FuzzRequest(f *testing.F) {
	for _, a := range supportedAPIs() {
		for version := a.min; version <= a.max; version++ {
			req := kmsg.RequestForKey(a.key)
			req.SetVersion(version)
			f.Add(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)[4:])
		}
	}
	topic := &Topic{Name: "orders"}
	for _, req := range []kmsg.Request{
		produceRequest(3, -1, part{"orders", 0, batch("v", 0)}),
		produceRequest(11, 1, part{"orders", 0, batch("v", 0)}, part{"nowhere", 1, batch("v", 0x10)}),
		fetchRequest(4, topic, 0, 0),
		fetchRequest(16, topic, 0, 0),
	} {
		f.Add(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)[4:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fl := newFleet(t)
		n := fl.addNode(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9092})
		fl.createTopic("orders", 2, n.id)
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		c := newConn(NewServer(n, Options{}), near, 1)
		c.endPoll() // no long polls
		defer c.abort()

		fr := frame{bytes: b, arrived: time.Now()}
		h, err := fr.header()
		if err != nil {
			return
		}
		resp, hint, err := c.answer(fr, h)
		if err != nil || resp == nil {
			return
		}
		out := encode(h, resp, hint)
		req := kmsg.RequestForKey(h.key)
		req.SetVersion(resp.GetVersion())
		if _, err := decodeResponse(req, out[8:]); err != nil {
			t.Fatalf("answer to key %d version %d does not decode: %v", h.key, h.version, err)
		}
	})
}
