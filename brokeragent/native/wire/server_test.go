package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestPipelinedProducesAreAppendedAndAnsweredInOrder(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	f.createTopic("orders", 1, n.id)
	c := dial(t, n)
	const requests = 200 // more than the queue holds
	go func() {
		for i := range requests {
			c.send(int32(i), produceRequest(9, -1, part{"orders", 0, batch(fmt.Sprint(i), 0)}))
		}
	}()
	for i := range requests {
		resp := c.answerTo(produceRequest(9, -1), int32(i)).(*kmsg.ProduceResponse)
		if p := resp.Topics[0].Partitions[0]; p.ErrorCode != 0 || p.BaseOffset != int64(i) {
			t.Fatalf("request %d: code %d at offset %d", i, p.ErrorCode, p.BaseOffset)
		}
	}
}

func TestAParkedPartitionDoesNotDelayTheOthersAppends(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	topic := f.createTopic("orders", 2, n.id)
	slow, fast := PartitionRef{"orders", topic.ID, 0}, PartitionRef{"orders", topic.ID, 1}
	release := f.park(slow)
	defer release()

	c := dial(t, n)
	req := produceRequest(9, -1, part{"orders", 0, batch("slow", 0)}, part{"orders", 1, batch("fast", 0)})
	c.send(1, req)
	eventually(t, "the second partition is appended while the first is parked", func() bool { return f.end(fast) == 1 })

	// What is read behind a parked request carries the time it came, not the time its turn came (R27 i).
	c.send(2, produceRequest(9, -1, part{"orders", 0, batch("behind", 0)}))
	time.Sleep(200 * time.Millisecond)
	released := time.Now()
	release()
	c.answerTo(req, 1)
	c.answerTo(req, 2)
	f.set(func() {
		if last := f.seen[len(f.seen)-1]; last.Arrived.After(released.Add(-100 * time.Millisecond)) {
			t.Errorf("the request behind has arrived %s before the release; it was read 200ms before", released.Sub(last.Arrived))
		}
	})
}

func TestNotLeaderCarriesTheHintWhereTheVersionCan(t *testing.T) {
	f := newFleet(t)
	one, two := f.start(Options{}), f.start(Options{})
	topic := f.createTopic("orders", 1, two.id)
	for version := int16(3); version <= 11; version++ {
		resp := roundTrip(t, one, produceRequest(version, -1, part{"orders", 0, batch("v", 0)})).(*kmsg.ProduceResponse)
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode != kerr.NotLeaderForPartition.Code {
			t.Errorf("produce %d: code %d", version, p.ErrorCode)
		}
		if hinted := p.CurrentLeader.LeaderID == two.id && p.CurrentLeader.LeaderEpoch == 1 && len(resp.Brokers) == 1; hinted != (version >= 10) {
			t.Errorf("produce %d: hint %+v, brokers %+v", version, p.CurrentLeader, resp.Brokers)
		}
	}
	for version := int16(4); version <= 16; version++ {
		resp := roundTrip(t, one, fetchRequest(version, topic, 0, 0)).(*kmsg.FetchResponse)
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode != kerr.NotLeaderForPartition.Code || p.RecordBatches == nil {
			t.Errorf("fetch %d: %+v", version, p)
		}
		if hinted := p.CurrentLeader.LeaderID == two.id && len(resp.Brokers) == 1; hinted != (version >= 16) {
			t.Errorf("fetch %d: hint %+v, brokers %+v", version, p.CurrentLeader, resp.Brokers)
		}
	}
}

func TestProduceRefusals(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	f.createTopic("orders", 1, n.id)
	tx := "tx"
	for _, tc := range []struct {
		name string
		req  *kmsg.ProduceRequest
		set  func(*kmsg.ProduceRequest)
		want int16
	}{
		{"version 2", produceRequest(2, -1, part{"orders", 0, batch("v", 0)}), nil, kerr.UnsupportedVersion.Code},
		{"version 0", produceRequest(0, 1, part{"orders", 0, batch("v", 0)}), nil, kerr.UnsupportedVersion.Code},
		{"acks", produceRequest(9, 2, part{"orders", 0, batch("v", 0)}), nil, kerr.InvalidRequiredAcks.Code},
		{"unknown topic", produceRequest(9, -1, part{"nowhere", 0, batch("v", 0)}), nil, kerr.UnknownTopicOrPartition.Code},
		{"unknown partition", produceRequest(9, -1, part{"orders", 1, batch("v", 0)}), nil, kerr.UnknownTopicOrPartition.Code},
		{"transactional id", produceRequest(9, -1, part{"orders", 0, batch("v", 0)}), func(r *kmsg.ProduceRequest) { r.TransactionID = &tx }, kerr.TransactionalIDAuthorizationFailed.Code},
		{"transactional batch", produceRequest(9, -1, part{"orders", 0, batch("v", attributeTransactional)}), nil, kerr.TransactionalIDAuthorizationFailed.Code},
		{"zstd before 7", produceRequest(6, -1, part{"orders", 0, batch("v", codecZstd)}), nil, kerr.UnsupportedCompressionType.Code},
		{"null records", produceRequest(9, -1, part{"orders", 0, nil}), nil, kerr.CorruptMessage.Code},
		{"fine", produceRequest(9, 1, part{"orders", 0, batch("v", 0)}), nil, 0},
	} {
		if tc.set != nil {
			tc.set(tc.req)
		}
		p := roundTrip(t, n, tc.req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		if p.ErrorCode != tc.want || tc.want != 0 && p.BaseOffset != -1 {
			t.Errorf("%s: code %d at offset %d, want code %d", tc.name, p.ErrorCode, p.BaseOffset, tc.want)
		}
	}
}

func TestProduceWithoutAcksIsSilentAndClosesOnAnError(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	topic := f.createTopic("orders", 1, n.id)
	c := dial(t, n)
	c.send(1, produceRequest(9, 0, part{"orders", 0, batch("v", 0)}))
	versions := kmsg.NewPtrApiVersionsRequest()
	c.send(2, versions)
	c.answerTo(versions, 2) // the first answer is the second request's
	c.send(3, produceRequest(9, 0, part{"nowhere", 0, batch("v", 0)}))
	c.closed()

	// A client that leaves right after sending has its records stored all the same.
	c = dial(t, n)
	for range 20 {
		c.send(1, produceRequest(9, 0, part{"orders", 0, batch("v", 0)}))
	}
	c.Close()
	eventually(t, "all records of the client that left are stored", func() bool { return f.end(PartitionRef{"orders", topic.ID, 0}) == 21 })
}

func TestFetchPollsUntilRecordsCome(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	topic := f.createTopic("orders", 2, n.id)
	c := dial(t, n)
	req := fetchRequest(16, topic, 0, 0)
	second := req.Topics[0].Partitions[0]
	second.Partition = 1
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, second)
	req.MaxWaitMillis = 300
	began := time.Now()
	c.send(1, req)
	p := c.answerTo(req, 1).(*kmsg.FetchResponse).Topics[0].Partitions
	if took := time.Since(began); took < 250*time.Millisecond {
		t.Errorf("an empty poll took %s, want 300ms", took)
	}
	if len(p) != 2 || p[0].RecordBatches == nil || len(p[0].RecordBatches) != 0 || p[0].HighWatermark != 0 || p[0].LastStableOffset != 0 {
		t.Errorf("empty poll: %+v", p)
	}

	req.MaxWaitMillis = 20_000
	began = time.Now()
	c.send(2, req)
	time.Sleep(50 * time.Millisecond)
	roundTrip(t, n, produceRequest(9, -1, part{"orders", 1, batch("hello", 0)}))
	p = c.answerTo(req, 2).(*kmsg.FetchResponse).Topics[0].Partitions
	if took := time.Since(began); took > 5*time.Second || !hasBytes(p[1].RecordBatches, "hello") || p[1].HighWatermark != 1 {
		t.Errorf("poll took %s and brought %+v", took, p)
	}

	// An owner that changed wakes the poll too: the answer then is an error.
	req = fetchRequest(16, topic, 0, 0)
	req.MaxWaitMillis = 20_000
	c.send(3, req)
	time.Sleep(50 * time.Millisecond)
	f.start(Options{})
	f.move("orders", 0, 2)
	if code := c.answerTo(req, 3).(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode; code != kerr.NotLeaderForPartition.Code {
		t.Errorf("code %d after the move", code)
	}
}

func TestFetchKeepsToItsBudgetInWholeBatches(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	topic := f.createTopic("orders", 3, n.id)
	value := strings.Repeat("x", 1000)
	one := len(batch(value, 0))
	for p := range int32(3) {
		for range 3 {
			roundTrip(t, n, produceRequest(9, -1, part{"orders", p, batch(value, 0)}))
		}
	}
	for _, tc := range []struct{ max, first, second, third int }{
		{1, 1, 0, 0}, // the first may exceed
		{one*4 + 10, 3, 1, 0},
		{one * 9, 3, 3, 3},
		{one*7 - 1, 3, 3, 0},
	} {
		req := fetchRequest(12, topic, 0, 0)
		base := req.Topics[0].Partitions[0]
		for p := int32(1); p < 3; p++ {
			base.Partition = p
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, base)
		}
		req.MaxBytes = int32(tc.max)
		ps := roundTrip(t, n, req).(*kmsg.FetchResponse).Topics[0].Partitions
		for i, want := range []int{tc.first, tc.second, tc.third} {
			if got := len(ps[i].RecordBatches); got != want*one || ps[i].HighWatermark != 3 {
				t.Errorf("max %d, partition %d: %d bytes, want %d batches of %d", tc.max, i, got, want, one)
			}
		}
	}
}

func TestFetchWithoutSessionsAndWithUnknownIDs(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	topic := f.createTopic("orders", 1, n.id)
	req := fetchRequest(13, topic, 0, 0)
	req.SessionEpoch = 0 // would like a session
	if resp := roundTrip(t, n, req).(*kmsg.FetchResponse); resp.SessionID != 0 || resp.ErrorCode != 0 || len(resp.Topics) != 1 {
		t.Errorf("a session was not declined: %+v", resp)
	}
	req.SessionID, req.SessionEpoch = 5, 1
	if resp := roundTrip(t, n, req).(*kmsg.FetchResponse); resp.ErrorCode != kerr.FetchSessionIDNotFound.Code {
		t.Errorf("a session nobody gave out: code %d", resp.ErrorCode)
	}
	req = fetchRequest(13, &Topic{ID: uuid.New()}, 0, 0)
	if resp := roundTrip(t, n, req).(*kmsg.FetchResponse); resp.Topics[0].Partitions[0].ErrorCode != kerr.UnknownTopicID.Code || resp.Topics[0].TopicID != req.Topics[0].TopicID {
		t.Errorf("unknown id: %+v", resp.Topics[0])
	}
}

func TestFindCoordinatorAndProducerIDs(t *testing.T) {
	f := newFleet(t)
	_, two := f.start(Options{}), f.start(Options{})
	for version := int16(0); version <= 4; version++ {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorKey, req.CoordinatorKeys = version, "g", []string{"g", "h"}
		resp := roundTrip(t, two, req).(*kmsg.FindCoordinatorResponse)
		code, id := resp.ErrorCode, resp.NodeID
		if version >= 4 {
			code, id = resp.Coordinators[1].ErrorCode, resp.Coordinators[1].NodeID
		}
		if code != 0 || id != 2 {
			t.Errorf("version %d: code %d node %d, want the broker itself", version, code, id)
		}
	}
	seen := map[int64]bool{}
	for version := int16(0); version <= 4; version++ {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.Version = version
		resp := roundTrip(t, two, req).(*kmsg.InitProducerIDResponse)
		if resp.ErrorCode != 0 || resp.ProducerID < 0 || resp.ProducerID>>62 != 0 || resp.ProducerEpoch != 0 || seen[resp.ProducerID] {
			t.Errorf("version %d: %+v", version, resp)
		}
		seen[resp.ProducerID] = true
		tx := "tx"
		req.TransactionalID = &tx
		if resp := roundTrip(t, two, req).(*kmsg.InitProducerIDResponse); resp.ErrorCode != kerr.TransactionalIDAuthorizationFailed.Code {
			t.Errorf("version %d, transactional: %+v", version, resp)
		}
	}
}

func TestDescribeCluster(t *testing.T) {
	f := newFleet(t)
	one, _ := f.start(Options{}), f.start(Options{})
	for version := int16(0); version <= 1; version++ {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.Version = version
		resp := roundTrip(t, one, req).(*kmsg.DescribeClusterResponse)
		if resp.ErrorCode != 0 || resp.ClusterID != "test-cluster" || resp.ControllerID != 1 || len(resp.Brokers) != 2 {
			t.Errorf("version %d: %+v", version, resp)
		}
	}
}

func TestApiVersionsTooNewIsAnsweredInVersionZero(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	for _, version := range []uint16{5, 99, 0xffff} {
		c := dial(t, n)
		// A header no decoder of today could read further than the correlation id.
		c.Write([]byte{0, 0, 0, 11, 0, 18, byte(version >> 8), byte(version), 0, 0, 0, 7, 0xde, 0xad, 0xbe})
		id, body := c.receive()
		resp := kmsg.NewPtrApiVersionsResponse()
		if err := resp.ReadFrom(body); err != nil || id != 7 {
			t.Fatalf("version %d: answer %d, %v", version, id, err)
		}
		if resp.ErrorCode != kerr.UnsupportedVersion.Code || len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != 18 || resp.ApiKeys[0].MaxVersion != 4 {
			t.Errorf("version %d: %+v", version, resp)
		}
		again := kmsg.NewPtrApiVersionsRequest()
		again.Version = 4
		c.send(8, again)
		if got := c.answerTo(again, 8).(*kmsg.ApiVersionsResponse); got.ErrorCode != 0 || len(got.ApiKeys) != len(supportedAPIs()) {
			t.Errorf("after version %d: %+v", version, got)
		}
	}
}

func TestMalformedRequestsCloseOnlyTheirConnection(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	bystander := dial(t, n)
	size := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	fetch := kmsg.NewRequestFormatter().AppendRequest(nil, fetchRequest(12, &Topic{Name: "orders"}, 0, 0), 1)
	truncated := append(size(uint32(len(fetch)-4-10)), fetch[4:len(fetch)-10]...)
	for name, b := range map[string][]byte{
		"oversized":             append(size(200<<20), 0, 0, 0, 9),
		"oversized non-produce": append(size(9<<20), 0, 1, 0, 9),
		"negative size":         append(size(1<<31), 0, 0, 0, 9),
		"tiny":                  append(size(4), 0, 18, 0, 0, 0, 0, 0, 0),
		"http":                  []byte("GET / HTTP/1.1\r\n\r\n"),
		"truncated body":        truncated,
		"unknown key":           append(size(10), 0x7f, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff),
		"group membership":      append(size(10), 0, 11, 0, 0, 0, 0, 0, 1, 0xff, 0xff),
		"unserved version":      append(size(10), 0, 2, 0, 0, 0, 0, 0, 1, 0xff, 0xff),
		"long client id":        append(size(10), 0, 3, 0, 0, 0, 0, 0, 1, 0x7f, 0xff),
		"many topics":           append(size(24), 0, 0, 0, 3, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff, 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, n)
			c.Write(b)
			c.closed()
			versions := kmsg.NewPtrApiVersionsRequest()
			bystander.send(1, versions)
			bystander.answerTo(versions, 1)
		})
	}
	for _, version := range []int16{0, 3, 17, 18} {
		req := fetchRequest(version, &Topic{Name: "orders", ID: uuid.New()}, 0, 0)
		resp := roundTrip(t, n, req).(*kmsg.FetchResponse)
		if version >= 7 && resp.ErrorCode != kerr.UnsupportedVersion.Code || resp.Topics[0].Partitions[0].ErrorCode != kerr.UnsupportedVersion.Code {
			t.Errorf("fetch version %d: %+v", version, resp)
		}
	}
	for _, version := range []int16{12, 13} {
		req := produceRequest(version, -1, part{"orders", 0, batch("v", 0)})
		if resp := roundTrip(t, n, req).(*kmsg.ProduceResponse); resp.Topics[0].Partitions[0].ErrorCode != kerr.UnsupportedVersion.Code {
			t.Errorf("produce version %d: %+v", version, resp)
		}
	}
}

func TestAPanicClosesOnlyItsConnection(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	f.createTopic("orders", 1, n.id)
	f.set(func() { f.panics = true })
	c := dial(t, n)
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version = 7
	req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "orders", Partitions: []kmsg.ListOffsetsRequestTopicPartition{{CurrentLeaderEpoch: -1, Timestamp: -1}}}}
	c.send(1, req)
	c.closed()
	f.set(func() { f.panics = false })
	if resp := roundTrip(t, n, req).(*kmsg.ListOffsetsResponse); resp.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Errorf("after the panic: %+v", resp)
	}
}

func TestIdleConnectionsAreClosedAndBusyOnesAreNot(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{IdleTimeout: 100 * time.Millisecond})
	topic := f.createTopic("orders", 1, n.id)
	c := dial(t, n)
	req := fetchRequest(12, topic, 0, 0)
	req.MaxWaitMillis = 500
	c.send(1, req)
	c.answerTo(req, 1)
	c.closed()
}

func TestShutdownAnswersWhatIsInHand(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	topic := f.createTopic("orders", 1, n.id)
	poll, parked, idle := dial(t, n), dial(t, n), dial(t, n)
	fetch := fetchRequest(12, topic, 0, 0)
	fetch.MaxWaitMillis = 60_000
	poll.send(1, fetch)
	eventually(t, "the poll is waiting", func() bool { return f.called("Fetch") > 0 })
	release := f.park(PartitionRef{"orders", topic.ID, 0})
	f.set(func() { f.logs[PartitionRef{"orders", topic.ID, 0}].changed = make(chan struct{}) }) // the append will not wake the poll
	req := produceRequest(9, -1, part{"orders", 0, batch("v", 0)})
	parked.send(1, req)
	eventually(t, "the produce is parked", func() bool { return f.called("Produce") > 0 })

	stopped := make(chan error, 1)
	go func() { stopped <- n.srv.Shutdown(within(t, 20*time.Second)) }()
	poll.answerTo(fetch, 1)
	poll.closed()
	idle.closed()
	select {
	case err := <-stopped:
		t.Fatalf("Shutdown returned %v while a produce is parked", err)
	case <-time.After(100 * time.Millisecond):
	}
	release()
	if p := parked.answerTo(req, 1).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.ErrorCode != 0 {
		t.Errorf("the parked produce got code %d", p.ErrorCode)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

func TestShutdownAnswersWhatWasReadAndDropsTheRest(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{MaxQueuedRequests: 2})
	topic := f.createTopic("orders", 1, n.id)
	release := f.park(PartitionRef{"orders", topic.ID, 0})
	c := dial(t, n)
	req := produceRequest(9, -1, part{"orders", 0, batch("v", 0)})
	for i := range int32(5) { // one in hand, one queued, three unread
		c.send(i, req)
	}
	eventually(t, "the first is parked", func() bool { return f.called("Produce") == 1 })
	time.Sleep(50 * time.Millisecond)
	stopped := make(chan error, 1)
	go func() { stopped <- n.srv.Shutdown(within(t, 20*time.Second)) }()
	<-n.srv.stopping
	n.srv.stop() // once more: it returns when no connection reads any more
	release()
	c.answerTo(req, 0)
	c.answerTo(req, 1)
	c.closed()
	c.Close()
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if end := f.end(PartitionRef{"orders", topic.ID, 0}); end != 2 {
		t.Errorf("log end %d, want 2", end)
	}
}

func TestShutdownThatRunsOutOfTimeCancelsWhatIsLeft(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	topic := f.createTopic("orders", 1, n.id)
	defer f.park(PartitionRef{"orders", topic.ID, 0})()
	c := dial(t, n)
	c.send(1, produceRequest(9, -1, part{"orders", 0, batch("v", 0)}))
	eventually(t, "the produce is parked", func() bool { return f.called("Produce") > 0 })
	if err := n.srv.Shutdown(within(t, 100*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
}

func TestRequestsWaitForTheFirstRoutingTable(t *testing.T) {
	f := newFleet(t)
	f.ready = make(chan struct{})
	n := f.start(Options{})
	versions := kmsg.NewPtrApiVersionsRequest()
	roundTrip(t, n, versions) // needs none
	c := dial(t, n)
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 4
	c.send(1, req)
	time.Sleep(50 * time.Millisecond)
	close(f.ready)
	if resp := c.answerTo(req, 1).(*kmsg.MetadataResponse); len(resp.Brokers) != 1 {
		t.Errorf("%+v", resp)
	}
}

// counts is a Metrics for tests.
type counts struct{ open, handled atomic.Int64 }

func (c *counts) ConnectionOpened() { c.open.Add(1) }
func (c *counts) ConnectionClosed() { c.open.Add(-1) }
func (c *counts) RequestHandled(_, _ int16, request, answer int, _, _ time.Duration) {
	if request > headerBytes && answer > headerBytes {
		c.handled.Add(1)
	}
}

func TestAClientThatReadsNothingIsCutOff(t *testing.T) {
	f := newFleet(t)
	seen := &counts{}
	n := f.start(Options{WriteTimeout: 200 * time.Millisecond, Metrics: seen})
	topic := f.createTopic("orders", 1, n.id)
	roundTrip(t, n, produceRequest(9, -1, part{"orders", 0, batch(strings.Repeat("x", 4<<20), 0)}))
	eventually(t, "one request is counted", func() bool { return seen.handled.Load() == 1 })
	c := dial(t, n)
	for range 20 {
		c.send(1, fetchRequest(12, topic, 0, 0))
	}
	eventually(t, "a fetch is being answered", func() bool { return f.called("Fetch") > 0 })
	// The one that produced goes away only when the test ends.
	eventually(t, "the client that reads nothing is gone", func() bool { return seen.open.Load() == 1 })
}

func TestReadingAheadIsBounded(t *testing.T) {
	q := newFrameQueue(3, 100)
	if !q.claim(500) {
		t.Fatalf("a request alone finds no room")
	}
	got := make(chan bool)
	claim := func(n int) { go func() { got <- q.claim(n) }() }
	waits := func(why string) {
		t.Helper()
		select {
		case <-got:
			t.Fatalf("claimed although %s", why)
		case <-time.After(20 * time.Millisecond):
		}
	}
	claim(1)
	waits("the bytes are spent")
	q.release(500)
	<-got
	if !q.claim(40) || !q.claim(59) {
		t.Fatalf("there was room")
	}
	claim(0)
	waits("three requests are held")
	q.push(frame{bytes: []byte("a")})
	q.close()
	if <-got {
		t.Errorf("a closed queue gives room")
	}
	if _, ok := q.pop(); !ok {
		t.Errorf("what was pushed is lost by closing")
	}
	if _, ok := q.pop(); ok {
		t.Errorf("a closed and empty queue still pops")
	}
}

func TestRecordsOfALargeRequestArriveWhole(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	topic := f.createTopic("orders", 1, n.id)
	big := batch(strings.Repeat("0123456789abcdef", 3<<16), 0) // more than one chunk, more than one doubling
	roundTrip(t, n, produceRequest(9, -1, part{"orders", 0, big}))
	got := roundTrip(t, n, fetchRequest(12, topic, 0, 0)).(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches
	if !bytes.Equal(got[batchMagicAt:], big[batchMagicAt:]) {
		t.Errorf("%d bytes came back, %d were sent", len(got), len(big))
	}
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("not within 10s: %s", what)
}
