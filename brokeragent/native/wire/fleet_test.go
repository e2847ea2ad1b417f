package wire

import (
	"context"
	"encoding/binary"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
)

// fleet is a little in-memory broker fleet: real logs of real batches, a shared routing table, and moves.
type fleet struct {
	t     testing.TB
	ready chan struct{}

	mu      sync.Mutex // guards: everything below
	routing *Routing
	logs    map[PartitionRef]*memLog
	offsets map[string]map[PartitionRef]CommittedOffset
	calls   map[string]int // Broker calls by name
	whole   int16          // answers every OffsetCommit and OffsetFetch when set
	hints   bool           // NOT_LEADER carries the new leader
	panics  bool           // ListOffset panics
	parked  map[PartitionRef]chan struct{}
	seen    []ProduceRequest // without records
}

// node is one broker of the fleet.
type node struct {
	*fleet
	id   int32
	addr string
	srv  *Server
}

type memLog struct {
	batches []memBatch
	end     int64
	epochs  []memEpoch
	changed chan struct{}
	pids    map[int64][]memBatch
}

type memBatch struct {
	base, end      int64
	epoch          int32
	maxTimestamp   int64
	attributes     uint16
	pid            int64
	firstSeq, next int32
	bytes          []byte
}

type memEpoch struct {
	epoch int32
	start int64
}

func newFleet(t testing.TB) *fleet {
	f := &fleet{
		t:       t,
		ready:   make(chan struct{}),
		routing: &Routing{ClusterID: "test-cluster", Topics: map[string]*Topic{}, TopicIDs: map[uuid.UUID]*Topic{}},
		logs:    map[PartitionRef]*memLog{},
		offsets: map[string]map[PartitionRef]CommittedOffset{},
		calls:   map[string]int{},
		parked:  map[PartitionRef]chan struct{}{},
		hints:   true,
	}
	close(f.ready)
	return f
}

// start adds a node with a server on a port of its own.
func (f *fleet) start(opts Options) *node {
	f.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatalf("listen: %v", err)
	}
	n := f.addNode(ln.Addr().(*net.TCPAddr))
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(testWriter{f.t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	n.srv = NewServer(n, opts)
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { served <- n.srv.Serve(ctx, ln) }()
	f.t.Cleanup(func() {
		cancel()
		select {
		case err := <-served:
			if err != nil {
				f.t.Errorf("Serve: %v", err)
			}
		case <-time.After(10 * time.Second):
			f.t.Errorf("Serve did not return")
		}
	})
	return n
}

func (f *fleet) addNode(at *net.TCPAddr) *node {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := &node{fleet: f, id: int32(len(f.routing.Nodes) + 1), addr: at.String()}
	r := *f.routing
	r.Nodes = append(slices.Clone(r.Nodes), Node{ID: n.id, Host: at.IP.String(), Port: int32(at.Port)})
	f.routing = &r
	return n
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) { w.t.Logf("%s", p); return len(p), nil }

// createTopic puts all partitions on one node.
func (f *fleet) createTopic(name string, partitions int, leader int32) *Topic {
	f.mu.Lock()
	defer f.mu.Unlock()
	topic := &Topic{ID: uuid.New(), Name: name}
	for p := range int32(partitions) {
		topic.Partitions = append(topic.Partitions, PartitionRoute{Partition: p, Leader: leader, LeaderEpoch: 1})
		f.logs[PartitionRef{name, topic.ID, p}] = &memLog{
			changed: make(chan struct{}), pids: map[int64][]memBatch{}, epochs: []memEpoch{{1, 0}},
		}
	}
	f.setTopic(topic)
	return topic
}

// setTopic publishes a new table. Callers hold f.mu.
func (f *fleet) setTopic(topic *Topic) {
	r := *f.routing
	r.Topics, r.TopicIDs = maps.Clone(r.Topics), maps.Clone(r.TopicIDs)
	r.Topics[topic.Name], r.TopicIDs[topic.ID] = topic, topic
	f.routing = &r
}

// move makes another node the owner, at the next epoch. Owner -1 leaves none, at the same epoch.
func (f *fleet) move(name string, partition, to int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	topic := *f.routing.Topics[name]
	topic.Partitions = slices.Clone(topic.Partitions)
	p := &topic.Partitions[partition]
	p.Leader = to
	if to >= 0 {
		p.LeaderEpoch++
		l := f.logs[PartitionRef{name, topic.ID, partition}]
		l.epochs = append(l.epochs, memEpoch{p.LeaderEpoch, l.end})
		l.change()
	}
	f.setTopic(&topic)
}

func (l *memLog) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// park holds produce answers of a partition until the returned function is called; appends still happen.
func (f *fleet) park(ref PartitionRef) (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ch := make(chan struct{})
	f.parked[ref] = ch
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.parked, ref)
		close(ch)
	})
}

func (f *fleet) end(ref PartitionRef) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.logs[ref].end
}

func (f *fleet) codecs(ref PartitionRef) map[uint16]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	codecs := map[uint16]int{}
	for _, b := range f.logs[ref].batches {
		codecs[b.attributes&attributeCodec]++
	}
	return codecs
}

func (f *fleet) called(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[name]
}

func (f *fleet) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (n *node) NodeID() int32          { return n.id }
func (n *node) Ready() <-chan struct{} { return n.ready }
func (n *node) Routing() *Routing {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.routing
}

// leads says whether this node leads, and what to answer when it does not. Callers hold f.mu.
func (n *node) leads(ref PartitionRef, epoch int32) (code int16, hint *LeaderHint) {
	n.calls["any"]++
	route := n.routing.Topics[ref.Topic].Partitions[ref.Partition]
	switch {
	case epoch >= 0 && epoch < route.LeaderEpoch:
		code = kerr.FencedLeaderEpoch.Code
	case epoch > route.LeaderEpoch:
		code = kerr.UnknownLeaderEpoch.Code
	case route.Leader != n.id:
		code = kerr.NotLeaderForPartition.Code
	}
	if code != 0 && n.hints {
		if leader, ok := n.routing.node(route.Leader); ok {
			hint = &LeaderHint{Node: leader, Epoch: route.LeaderEpoch}
		}
	}
	return code, hint
}

type memPending struct {
	answer ProduceAnswer
	park   chan struct{}
}

func (p memPending) Wait(ctx context.Context) ProduceAnswer {
	if p.park != nil {
		select {
		case <-p.park:
		case <-ctx.Done():
			return ProduceAnswer{Code: kerr.RequestTimedOut.Code, BaseOffset: -1}
		}
	}
	return p.answer
}

func (n *node) Produce(_ context.Context, req ProduceRequest) PendingProduce {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls["Produce"]++
	logged := req
	logged.Records = nil
	n.seen = append(n.seen, logged)
	code, hint := n.leads(req.PartitionRef, -1)
	if code != 0 {
		return memPending{answer: ProduceAnswer{Code: code, Leader: hint, BaseOffset: -1}}
	}
	l := n.logs[req.PartitionRef]
	b := req.Records
	if len(b) < batchHeaderBytes || b[batchMagicAt] != 2 || int(binary.BigEndian.Uint32(b[8:]))+12 != len(b) {
		return memPending{answer: ProduceAnswer{Code: kerr.CorruptMessage.Code, Message: "not one whole batch", BaseOffset: -1}}
	}
	in := memBatch{
		base:         l.end,
		end:          l.end + int64(int32(binary.BigEndian.Uint32(b[23:]))) + 1,
		epoch:        n.routing.Topics[req.Topic].Partitions[req.Partition].LeaderEpoch,
		maxTimestamp: int64(binary.BigEndian.Uint64(b[35:])),
		attributes:   binary.BigEndian.Uint16(b[batchAttributesAt:]),
		pid:          int64(binary.BigEndian.Uint64(b[43:])),
		firstSeq:     int32(binary.BigEndian.Uint32(b[53:])),
		bytes:        slices.Clone(b),
	}
	in.next = in.firstSeq + int32(in.end-in.base)
	if in.pid >= 0 {
		before := l.pids[in.pid]
		for _, old := range before {
			if old.firstSeq == in.firstSeq && old.next == in.next {
				return memPending{answer: ProduceAnswer{BaseOffset: old.base}}
			}
		}
		if len(before) > 0 && before[len(before)-1].next != in.firstSeq {
			return memPending{answer: ProduceAnswer{Code: kerr.OutOfOrderSequenceNumber.Code, BaseOffset: -1}}
		}
		l.pids[in.pid] = append(before, in)
	}
	binary.BigEndian.PutUint64(in.bytes, uint64(in.base))
	binary.BigEndian.PutUint32(in.bytes[12:], uint32(in.epoch))
	l.batches = append(l.batches, in)
	l.end = in.end
	l.change()
	return memPending{answer: ProduceAnswer{BaseOffset: in.base}, park: n.parked[req.PartitionRef]}
}

func (n *node) Fetch(_ context.Context, req FetchRequest) FetchAnswer {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls["Fetch"]++
	code, hint := n.leads(req.PartitionRef, req.CurrentLeaderEpoch)
	if code != 0 {
		return FetchAnswer{Code: code, Leader: hint, HighWatermark: -1, LogStart: -1}
	}
	l := n.logs[req.PartitionRef]
	if req.Offset < 0 || req.Offset > l.end {
		return FetchAnswer{Code: kerr.OffsetOutOfRange.Code, HighWatermark: l.end}
	}
	a := FetchAnswer{HighWatermark: l.end, Changed: l.changed}
	for _, b := range l.batches {
		if b.end <= req.Offset {
			continue
		}
		if len(a.Records) > 0 && len(a.Records)+len(b.bytes) > int(req.MaxBytes) {
			break
		}
		a.Records = append(a.Records, b.bytes...)
	}
	return a
}

func (n *node) ListOffset(_ context.Context, p PartitionRef, epoch int32, timestamp int64) OffsetAnswer {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.panics {
		panic("asked to")
	}
	if code, _ := n.leads(p, epoch); code != 0 {
		return OffsetAnswer{Code: code}
	}
	l := n.logs[p]
	newest := l.epochs[len(l.epochs)-1].epoch
	switch timestamp {
	case -1:
		return OffsetAnswer{Offset: l.end, Timestamp: -1, LeaderEpoch: newest}
	case -2:
		return OffsetAnswer{Offset: 0, Timestamp: -1, LeaderEpoch: l.epochs[0].epoch}
	case -3:
		best := OffsetAnswer{Offset: -1, Timestamp: -1, LeaderEpoch: -1}
		for _, b := range l.batches {
			if b.maxTimestamp > best.Timestamp {
				best = OffsetAnswer{Offset: b.end - 1, Timestamp: b.maxTimestamp, LeaderEpoch: b.epoch}
			}
		}
		return best
	}
	for _, b := range l.batches { // exact for batches of one record
		if b.maxTimestamp >= timestamp {
			return OffsetAnswer{Offset: b.base, Timestamp: b.maxTimestamp, LeaderEpoch: b.epoch}
		}
	}
	return OffsetAnswer{Offset: -1, Timestamp: -1, LeaderEpoch: -1}
}

func (n *node) EpochEnd(_ context.Context, p PartitionRef, current, epoch int32) EpochEndAnswer {
	n.mu.Lock()
	defer n.mu.Unlock()
	if code, _ := n.leads(p, current); code != 0 {
		return EpochEndAnswer{Code: code}
	}
	l := n.logs[p]
	a := EpochEndAnswer{LeaderEpoch: -1, EndOffset: -1}
	for i, e := range l.epochs {
		if e.epoch > epoch {
			break
		}
		a = EpochEndAnswer{LeaderEpoch: e.epoch, EndOffset: l.end}
		if i+1 < len(l.epochs) {
			a.EndOffset = l.epochs[i+1].start
		}
	}
	return a
}

func (n *node) CommitOffsets(_ context.Context, group string, commits []OffsetCommit) (int16, map[PartitionRef]int16) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls["CommitOffsets"]++
	if n.whole != 0 {
		return n.whole, nil
	}
	if n.offsets[group] == nil {
		n.offsets[group] = map[PartitionRef]CommittedOffset{}
	}
	codes := map[PartitionRef]int16{}
	for _, c := range commits {
		n.offsets[group][c.PartitionRef] = c.CommittedOffset
		codes[c.PartitionRef] = 0
	}
	return 0, codes
}

func (n *node) FetchOffsets(_ context.Context, group string, refs []PartitionRef) (int16, map[PartitionRef]CommittedOffset) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls["FetchOffsets"]++
	if n.whole != 0 {
		return n.whole, nil
	}
	if refs == nil {
		return 0, maps.Clone(n.offsets[group])
	}
	found := map[PartitionRef]CommittedOffset{}
	for _, ref := range refs {
		o, ok := n.offsets[group][ref]
		if !ok {
			o = CommittedOffset{Offset: -1, LeaderEpoch: -1}
		}
		found[ref] = o
	}
	return 0, found
}

func (n *node) CreateTopic(_ context.Context, req CreateTopicRequest) CreateTopicAnswer {
	if n.Routing().Topics[req.Name] != nil {
		return CreateTopicAnswer{Code: kerr.TopicAlreadyExists.Code, Message: "there is one already"}
	}
	partitions := max(int(req.Partitions), 1)
	if len(req.Assignment) > 0 {
		partitions = len(req.Assignment)
	}
	if partitions > 1000 {
		return CreateTopicAnswer{Code: kerr.InvalidPartitions.Code}
	}
	if req.ValidateOnly {
		return CreateTopicAnswer{Partitions: int32(partitions), ReplicationFactor: 1}
	}
	topic := n.createTopic(req.Name, partitions, n.id)
	return CreateTopicAnswer{ID: topic.ID, Partitions: int32(partitions), ReplicationFactor: 1}
}

func (n *node) AddPartitions(_ context.Context, req AddPartitionsRequest) (int16, string) {
	if req.ValidateOnly {
		return 0, ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	r := *n.routing
	r.Topics, r.TopicIDs = maps.Clone(r.Topics), maps.Clone(r.TopicIDs)
	topic := *r.Topics[req.Topic]
	topic.Partitions = slices.Clone(topic.Partitions)
	for int32(len(topic.Partitions)) < req.Total {
		topic.Partitions = append(topic.Partitions, PartitionRoute{Partition: int32(len(topic.Partitions)), Leader: n.id})
	}
	r.Topics[topic.Name], r.TopicIDs[topic.ID] = &topic, &topic
	n.routing = &r
	return 0, ""
}

func (n *node) DeleteTopic(_ context.Context, name string, id uuid.UUID) (int16, string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	topic := n.routing.Topics[name]
	if name == "" {
		if topic = n.routing.TopicIDs[id]; topic == nil {
			return kerr.UnknownTopicID.Code, ""
		}
	}
	if topic == nil {
		return kerr.UnknownTopicOrPartition.Code, "no such topic"
	}
	r := *n.routing
	r.Topics, r.TopicIDs = maps.Clone(r.Topics), maps.Clone(r.TopicIDs)
	delete(r.Topics, topic.Name)
	delete(r.TopicIDs, topic.ID)
	n.routing = &r
	return 0, ""
}
