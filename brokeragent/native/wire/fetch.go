package wire

import (
	"reflect"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	firstZstdFetch    = 10
	firstTopicIDFetch = 13
	firstHintingFetch = 16

	readCommitted = 1

	// rereadPause keeps a poll for many bytes from reading everything again at every small append.
	rereadPause = 5 * time.Millisecond
)

// fetched is one partition of a Fetch request with its newest answer.
type fetched struct {
	req    FetchRequest
	answer FetchAnswer
	known  bool // the broker is asked; otherwise the answer stands
}

// handleFetch answers once there are MinBytes, an error, or MaxWait is over. Fetch sessions are declined: session id 0
// makes every client send, and expect back, all its partitions each time.
func handleFetch(k *call) (kmsg.Response, error) {
	req := k.req.(*kmsg.FetchRequest)
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	if req.SessionEpoch > 0 { // the next fetch of a session, and there are none
		resp.ErrorCode = kerr.FetchSessionIDNotFound.Code
		return resp, nil
	}
	routing, err := k.routing()
	if err != nil {
		return nil, err
	}

	parts := fetchTargets(req, routing)
	budget := min(int(req.MaxBytes), k.srv.opts.MaxFetchBytes)
	maxWait := time.NewTimer(time.Duration(req.MaxWaitMillis) * time.Millisecond)
	defer maxWait.Stop()
	for reads := 0; ; reads++ {
		total, failed := k.readAll(parts, budget)
		if failed || len(parts) == 0 || req.MaxWaitMillis <= 0 || total >= min(int(req.MinBytes), budget) {
			break
		}
		if !k.awaitChange(parts, maxWait, reads > 0) {
			// Whatever came in between is answered rather than dropped.
			k.readAll(parts, budget)
			break
		}
	}
	k.fillFetch(resp, req, parts)
	return resp, nil
}

func fetchTargets(req *kmsg.FetchRequest, routing *Routing) []fetched {
	var parts []fetched
	for _, t := range req.Topics {
		topic, unknown := routing.Topics[t.Topic], kerr.UnknownTopicOrPartition
		if req.Version >= firstTopicIDFetch {
			if topic = routing.TopicIDs[uuid.UUID(t.TopicID)]; topic == nil {
				unknown = kerr.UnknownTopicID
			}
		}
		for _, p := range t.Partitions {
			ref, known := refOf(topic, p.Partition)
			f := fetched{known: known, answer: FetchAnswer{Code: unknown.Code, HighWatermark: -1, LogStart: -1}}
			f.req = FetchRequest{PartitionRef: ref, Offset: p.FetchOffset, CurrentLeaderEpoch: p.CurrentLeaderEpoch, MaxBytes: p.PartitionMaxBytes}
			parts = append(parts, f)
		}
	}
	return parts
}

// readAll reads every partition in the request's order within the budget; the first that has records may exceed it.
func (k *call) readAll(parts []fetched, budget int) (total int, failed bool) {
	for i := range parts {
		p := &parts[i]
		if !p.known {
			failed = true
			continue
		}
		ask := p.req
		ask.MaxBytes = int32(min(int(ask.MaxBytes), max(budget-total, 1)))
		p.answer = k.srv.broker.Fetch(k.conn.work, ask)
		if total > 0 {
			// A lone piece of a batch would stop some clients for good: cut to whole batches, or to nothing.
			if left := max(budget-total, 0); len(p.answer.Records) > left {
				p.answer.Records = wholeBatches(p.answer.Records, left)
			}
		}
		if p.answer.Code == 0 && k.version < firstZstdFetch && anyBatch(p.answer.Records, isZstd) {
			p.answer.Code, p.answer.Records = kerr.UnsupportedCompressionType.Code, nil
		}
		if p.answer.Code != 0 {
			p.answer.Records, p.answer.HighWatermark, p.answer.LogStart = nil, -1, -1
			failed = true
		}
		total += len(p.answer.Records)
	}
	return total, failed
}

// awaitChange waits until a partition may answer differently; false when the poll is over instead.
func (k *call) awaitChange(parts []fetched, maxWait *time.Timer, pause bool) bool {
	if pause {
		select {
		case <-time.After(rereadPause):
		case <-maxWait.C:
			return false
		case <-k.conn.poll.Done():
			return false
		}
	}
	// reflect.Select takes 65536 cases; beyond that, the poll simply is not woken by the rest.
	const mostCases = 65_000
	receive := func(ch any) reflect.SelectCase {
		return reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ch)}
	}
	cases := make([]reflect.SelectCase, 0, min(len(parts), mostCases)+2)
	cases = append(cases, receive(maxWait.C), receive(k.conn.poll.Done()))
	for i := range parts {
		if ch := parts[i].answer.Changed; ch != nil && len(cases) < mostCases {
			cases = append(cases, receive(ch))
		}
	}
	chosen, _, _ := reflect.Select(cases)
	return chosen > 1
}

func (k *call) fillFetch(resp *kmsg.FetchResponse, req *kmsg.FetchRequest, parts []fetched) {
	hints := nodeSet{}
	for _, t := range req.Topics {
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			a := parts[0].answer
			parts = parts[1:]
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.Partition = p.Partition
			rp.ErrorCode = a.Code
			rp.HighWatermark = a.HighWatermark
			rp.LastStableOffset = a.HighWatermark // there are no transactions
			rp.LogStartOffset = a.LogStart
			rp.RecordBatches = a.Records
			if rp.RecordBatches == nil {
				rp.RecordBatches = []byte{} // librdkafka wants empty, not null
			}
			if req.IsolationLevel == readCommitted {
				rp.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
			}
			if a.Code == kerr.NotLeaderForPartition.Code && a.Leader != nil && k.version >= firstHintingFetch {
				rp.CurrentLeader.LeaderID = a.Leader.Node.ID
				rp.CurrentLeader.LeaderEpoch = a.Leader.Epoch
				hints.add(a.Leader.Node)
			}
			k.sizeHint += len(a.Records) + 64
			rt.Partitions = append(rt.Partitions, rp)
		}
		k.sizeHint += len(t.Topic) + 32
		resp.Topics = append(resp.Topics, rt)
	}
	for _, n := range hints.nodes {
		b := kmsg.NewFetchResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = n.ID, n.Host, n.Port, orNull(n.Rack)
		resp.Brokers = append(resp.Brokers, b)
	}
}
