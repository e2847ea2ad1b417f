package wire

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	firstServedProduce  = 3 // older ones carry message sets, which are not record batches
	firstZstdProduce    = 7
	firstHintingProduce = 10
)

// handleProduce hands every partition's batches to the broker before it waits for the first answer, so that a parked
// partition delays the others' answers but not their appends.
func handleProduce(k *call) (kmsg.Response, error) {
	req := k.req.(*kmsg.ProduceRequest)
	resp := req.ResponseKind().(*kmsg.ProduceResponse)

	routing, err := k.routing()
	if err != nil {
		return nil, err
	}
	refused, why := refuseProduce(req)

	// answers[t][p] waits for request partition p of topic t.
	answers := make([][]PendingProduce, len(req.Topics))
	for i, t := range req.Topics {
		answers[i] = make([]PendingProduce, len(t.Partitions))
		topic := routing.Topics[t.Topic]
		for j, p := range t.Partitions {
			ref, known := refOf(topic, p.Partition)
			switch {
			case refused != nil:
				answers[i][j] = refusal(refused, why)
			case !known:
				answers[i][j] = refusal(kerr.UnknownTopicOrPartition, "")
			case k.version < firstZstdProduce && anyBatch(p.Records, isZstd):
				answers[i][j] = refusal(kerr.UnsupportedCompressionType, "zstd needs Produce version 7")
			default:
				answers[i][j] = k.srv.broker.Produce(k.conn.work, ProduceRequest{
					PartitionRef: ref,
					Conn:         k.conn.id,
					Arrived:      k.arrived,
					Acks:         req.Acks,
					Timeout:      time.Duration(req.TimeoutMillis) * time.Millisecond,
					Records:      p.Records,
					KnowsHint:    k.version >= firstHintingProduce,
				})
			}
		}
	}

	var failed error
	hints := nodeSet{}
	for i, t := range req.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = t.Topic
		for j, p := range t.Partitions {
			a := answers[i][j].Wait(k.conn.work)
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition = p.Partition
			rp.ErrorCode = a.Code
			rp.BaseOffset = a.BaseOffset
			rp.LogStartOffset = a.LogStart
			rp.ErrorMessage = orNull(a.Message)
			if a.Code != 0 {
				rp.BaseOffset = -1
				failed = fmt.Errorf("produce to %s/%d: %w", t.Topic, p.Partition, kerr.ErrorForCode(a.Code))
			}
			if a.Code == kerr.NotLeaderForPartition.Code && a.Leader != nil && k.version >= firstHintingProduce {
				rp.CurrentLeader.LeaderID = a.Leader.Node.ID
				rp.CurrentLeader.LeaderEpoch = a.Leader.Epoch
				hints.add(a.Leader.Node)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}

	if req.Acks == 0 {
		// Nobody reads an answer. Closing is the only way to tell the client, as Kafka does.
		return nil, failed
	}
	for _, n := range hints.nodes {
		b := kmsg.NewProduceResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = n.ID, n.Host, n.Port, orNull(n.Rack)
		resp.Brokers = append(resp.Brokers, b)
	}
	return resp, nil
}

// refuseProduce names what makes a whole request impossible, as the protocol refuses it for all partitions at once.
func refuseProduce(req *kmsg.ProduceRequest) (*kerr.Error, string) {
	switch {
	case req.Version < firstServedProduce:
		return kerr.UnsupportedVersion, ""
	case req.Acks < -1 || req.Acks > 1:
		return kerr.InvalidRequiredAcks, ""
	case req.TransactionID != nil:
		return kerr.TransactionalIDAuthorizationFailed, noTransactions
	}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			if anyBatch(p.Records, isTransactional) {
				return kerr.TransactionalIDAuthorizationFailed, noTransactions
			}
		}
	}
	return nil, ""
}

// decided is a produce answer that needs no waiting.
type decided ProduceAnswer

func (d decided) Wait(context.Context) ProduceAnswer { return ProduceAnswer(d) }

func refusal(e *kerr.Error, message string) PendingProduce {
	return decided{Code: e.Code, Message: message, BaseOffset: -1, LogStart: -1}
}

// nodeSet keeps the distinct nodes that hints name, for NodeEndpoints.
type nodeSet struct {
	seen  map[int32]bool
	nodes []Node
}

func (s *nodeSet) add(n Node) {
	if s.seen[n.ID] {
		return
	}
	if s.seen == nil {
		s.seen = map[int32]bool{}
	}
	s.seen[n.ID] = true
	s.nodes = append(s.nodes, n)
}
