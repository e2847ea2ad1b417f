package agenttest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"portage/brokeragent/native/recordbatch"
	"portage/brokeragent/native/recordbatch/batchtest"
	"portage/metastore"
)

// Conn speaks the Kafka protocol by hand, where the order on one connection matters.
type Conn struct {
	t    testing.TB
	conn net.Conn
	sent int32
	next int32
}

// Dial connects to an agent as a client.
func (a *Agent) Dial() *Conn {
	a.fleet.T.Helper()
	c, err := net.Dial("tcp", a.Kafka())
	if err != nil {
		a.fleet.T.Fatal(err)
	}
	a.fleet.T.Cleanup(func() { c.Close() })
	return &Conn{t: a.fleet.T, conn: c}
}

// Send writes a request and does not wait.
func (c *Conn) Send(req kmsg.Request) {
	c.t.Helper()
	c.sent++
	if _, err := c.conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, c.sent)); err != nil {
		c.t.Fatal(err)
	}
}

// Receive reads the answer to the oldest request that was not answered yet.
func (c *Conn) Receive(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	resp, err := c.TryReceive(req, patience)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp
}

// TryReceive is Receive with a bound; an error means that no answer came.
func (c *Conn) TryReceive(req kmsg.Request, within time.Duration) (kmsg.Response, error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(within))
	var size [4]byte
	if _, err := io.ReadFull(c.conn, size[:]); err != nil {
		return nil, err
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c.conn, body); err != nil {
		return nil, err
	}
	c.next++
	if got := int32(binary.BigEndian.Uint32(body)); got != c.next {
		return nil, fmt.Errorf("answer %d came, want %d", got, c.next)
	}
	body = body[4:]
	resp := req.ResponseKind()
	if resp.IsFlexible() {
		if len(body) == 0 || body[0] != 0 {
			return nil, errors.New("no empty tags in the response header")
		}
		body = body[1:]
	}
	return resp, resp.ReadFrom(body)
}

// Ask sends one request and waits for its answer.
func (c *Conn) Ask(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	c.Send(req)
	return c.Receive(req)
}

// Record is one batch with one record of no producer.
func Record(value string) []byte {
	return batchtest.Batch(batchtest.Opts{Records: []batchtest.Record{{Value: []byte(value), Timestamp: 1}}})
}

// Sequenced is one batch with one record of an idempotent producer.
func Sequenced(producer int64, sequence int32, value string) []byte {
	return batchtest.Batch(batchtest.Opts{Records: []batchtest.Record{{Value: []byte(value), Timestamp: 1}}, Producer: &batchtest.Producer{ID: producer, Seq: sequence}})
}

// ProduceRequest carries one batch for one partition.
func ProduceRequest(topic *metastore.Topic, partition int32, batch []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 11, -1, 5000
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, batch
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.Partitions = topic.Name, []kmsg.ProduceRequestTopicPartition{rp}
	req.Topics = []kmsg.ProduceRequestTopic{rt}
	return req
}

// Produced is the one partition's part of a produce answer.
func Produced(resp kmsg.Response) kmsg.ProduceResponseTopicPartition {
	return resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
}

// Produce sends one batch on a connection of its own and returns the code and the offset.
func (a *Agent) Produce(topic *metastore.Topic, partition int32, batch []byte) (code int16, offset int64) {
	a.fleet.T.Helper()
	answer := Produced(a.Dial().Ask(ProduceRequest(topic, partition, batch)))
	return answer.ErrorCode, answer.BaseOffset
}

// Write produces records one by one; each must be acknowledged. It returns the offset of the last.
func (a *Agent) Write(topic *metastore.Topic, partition int32, values ...string) (last int64) {
	a.fleet.T.Helper()
	c := a.Dial()
	for _, v := range values {
		answer := Produced(c.Ask(ProduceRequest(topic, partition, Record(v))))
		if answer.ErrorCode != 0 {
			a.fleet.T.Fatalf("record %q was answered with code %d by %s", v, answer.ErrorCode, a.ID)
		}
		last = answer.BaseOffset
	}
	return last
}

// Fetch reads from an offset and returns the code and the answer's whole batches.
func (a *Agent) Fetch(topic *metastore.Topic, partition int32, offset int64) (code int16, values []string, next int64) {
	a.fleet.T.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MinBytes, req.MaxWaitMillis, req.SessionEpoch, req.MaxBytes = 12, 1, 0, -1, 16<<20
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = partition, offset, 16<<20, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID, rt.Partitions = topic.Name, topic.ID, []kmsg.FetchRequestTopicPartition{rp}
	req.Topics = []kmsg.FetchRequestTopic{rt}
	p := a.Dial().Ask(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	next = offset
	for header, batch := range recordbatch.Iterate(p.RecordBatches) {
		values = append(values, records(a.fleet.T, batch)...)
		next = header.NextOffset()
	}
	return p.ErrorCode, values, next
}

// Values reads every record of a partition from an agent that serves it.
func (a *Agent) Values(topic *metastore.Topic, partition int32) (values []string) {
	a.fleet.T.Helper()
	for offset := int64(0); ; {
		code, some, next := a.Fetch(topic, partition, offset)
		if code != 0 {
			a.fleet.T.Fatalf("fetching %s/%d from %s at %d: code %d", topic.Name, partition, a.ID, offset, code)
		}
		if next == offset {
			return values
		}
		values, offset = append(values, some...), next
	}
}

// records decodes the values of an uncompressed batch.
func records(t testing.TB, batch []byte) (values []string) {
	t.Helper()
	var b kmsg.RecordBatch
	if err := b.ReadFrom(batch); err != nil {
		t.Fatal(err)
	}
	rest := b.Records
	for range b.NumRecords {
		length, n := binary.Varint(rest)
		size := n + int(length)
		var r kmsg.Record
		if n <= 0 || size > len(rest) {
			t.Fatal("a record is cut short")
		}
		if err := r.ReadFrom(rest[:size]); err != nil {
			t.Fatal(err)
		}
		values, rest = append(values, string(r.Value)), rest[size:]
	}
	return values
}

// NewProducerID asks an agent for a producer id.
func (a *Agent) NewProducerID() int64 {
	a.fleet.T.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version = 4
	resp := a.Dial().Ask(req).(*kmsg.InitProducerIDResponse)
	if resp.ErrorCode != 0 {
		a.fleet.T.Fatalf("no producer id: code %d", resp.ErrorCode)
	}
	return resp.ProducerID
}

// leaderOf asks for the owner of a partition as clients do; -1 when it is not known.
func (a *Agent) leaderOf(topic *metastore.Topic, partition int32) int32 {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 9
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &topic.Name
	req.Topics = []kmsg.MetadataRequestTopic{rt}
	resp := a.Dial().Ask(req).(*kmsg.MetadataResponse)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.Partition == partition && t.ErrorCode == 0 {
				return p.Leader
			}
		}
	}
	return -1
}

// CommitOffset commits one offset of a simple consumer and returns the partition's code.
func (a *Agent) CommitOffset(topic *metastore.Topic, partition int32, group string, offset int64) int16 {
	a.fleet.T.Helper()
	return a.CommitOffsets(topic, group, map[int32]int64{partition: offset})[partition]
}

// CommitOffsets commits offsets of a simple consumer in one request and returns the code of each partition.
func (a *Agent) CommitOffsets(topic *metastore.Topic, group string, offsets map[int32]int64) map[int32]int16 {
	a.fleet.T.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 7, group, -1
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = topic.Name
	for partition, offset := range offsets {
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch = partition, offset, -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = []kmsg.OffsetCommitRequestTopic{rt}
	codes := map[int32]int16{}
	for _, p := range a.Dial().Ask(req).(*kmsg.OffsetCommitResponse).Topics[0].Partitions {
		codes[p.Partition] = p.ErrorCode
	}
	return codes
}

// CommittedOffset reads a group's offset.
func (a *Agent) CommittedOffset(topic *metastore.Topic, partition int32, group string) (code int16, offset int64) {
	a.fleet.T.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.Group = 7, group
	rt := kmsg.NewOffsetFetchRequestTopic()
	rt.Topic, rt.Partitions = topic.Name, []int32{partition}
	req.Topics = []kmsg.OffsetFetchRequestTopic{rt}
	resp := a.Dial().Ask(req).(*kmsg.OffsetFetchResponse)
	if resp.ErrorCode != 0 {
		return resp.ErrorCode, -1
	}
	p := resp.Topics[0].Partitions[0]
	return p.ErrorCode, p.Offset
}
