package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// rawConn speaks the protocol by hand.
type rawConn struct {
	t testing.TB
	net.Conn
}

func dial(t testing.TB, n *node) rawConn {
	t.Helper()
	c, err := net.Dial("tcp", n.addr)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return rawConn{t, c}
}

func (c rawConn) send(correlation int32, req kmsg.Request) {
	c.t.Helper()
	if _, err := c.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, correlation)); err != nil {
		c.t.Fatalf("send key %d: %v", req.Key(), err)
	}
}

// receive reads one answer: its correlation id, and the rest.
func (c rawConn) receive() (int32, []byte) {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		c.t.Fatalf("read answer: %v", err)
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, body); err != nil {
		c.t.Fatalf("read answer: %v", err)
	}
	return int32(binary.BigEndian.Uint32(body)), body[4:]
}

func (c rawConn) answerTo(req kmsg.Request, correlation int32) kmsg.Response {
	c.t.Helper()
	got, body := c.receive()
	if got != correlation {
		c.t.Fatalf("answer %d came; want %d", got, correlation)
	}
	resp, err := decodeResponse(req, body)
	if err != nil {
		c.t.Fatalf("decode answer to key %d version %d: %v", req.Key(), req.GetVersion(), err)
	}
	return resp
}

func decodeResponse(req kmsg.Request, body []byte) (kmsg.Response, error) {
	resp := req.ResponseKind()
	if resp.IsFlexible() && req.Key() != apiVersionsKey {
		if len(body) == 0 || body[0] != 0 {
			return nil, errors.New("no empty tags in the response header")
		}
		body = body[1:]
	}
	return resp, resp.ReadFrom(body)
}

// closed waits for the server to close the connection without another byte.
func (c rawConn) closed() {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, err := c.Read(make([]byte, 1))
	if n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("connection is not closed: %d bytes, error %v", n, err)
	}
}

func roundTrip(t testing.TB, n *node, req kmsg.Request) kmsg.Response {
	t.Helper()
	c := dial(t, n)
	c.send(1, req)
	return c.answerTo(req, 1)
}

// batch is one uncompressed record batch with one record.
func batch(value string, attributes int16) []byte {
	rec := kmsg.Record{Value: []byte(value)}
	rec.Length = int32(len(rec.AppendTo(nil)) - 1)
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: attributes, NumRecords: 1,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, FirstTimestamp: 1, MaxTimestamp: 1,
		Records: rec.AppendTo(nil),
	}
	b.Length = int32(len(b.AppendTo(nil)) - 12)
	raw := b.AppendTo(nil)
	b.CRC = int32(crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b.AppendTo(nil)
}

type part struct {
	topic     string
	partition int32
	records   []byte
}

func produceRequest(version, acks int16, parts ...part) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, acks, 5000
	for _, p := range parts {
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = p.partition, p.records
		req.Topics = append(req.Topics, kmsg.ProduceRequestTopic{Topic: p.topic, Partitions: []kmsg.ProduceRequestTopicPartition{rp}})
	}
	return req
}

func fetchRequest(version int16, topic *Topic, partition int32, offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MinBytes, req.MaxWaitMillis, req.SessionEpoch = version, 1, 0, -1
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = partition, offset, 1<<20
	req.Topics = []kmsg.FetchRequestTopic{{Topic: topic.Name, TopicID: topic.ID, Partitions: []kmsg.FetchRequestTopicPartition{rp}}}
	return req
}

func hasBytes(haystack []byte, needle string) bool { return bytes.Contains(haystack, []byte(needle)) }
