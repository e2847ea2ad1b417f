package native

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"

	"portage/brokeragent/native/wire"
	"portage/metastore"
)

// CreateTopic implements wire.Broker: topics are rows of the metastore, whichever agent is asked.
func (b *Broker) CreateTopic(ctx context.Context, req wire.CreateTopicRequest) wire.CreateTopicAnswer {
	if req.ReplicationFactor != -1 && req.ReplicationFactor != 1 {
		return wire.CreateTopicAnswer{Code: kerr.InvalidReplicationFactor.Code, Message: fmt.Sprintf("replication factor %d is not supported, use 1", req.ReplicationFactor)}
	}
	partitions, placement, err := b.placement(req)
	if err != nil {
		return wire.CreateTopicAnswer{Code: kerr.InvalidReplicaAssignment.Code, Message: err.Error()}
	}
	topic, err := b.cfg.Rows.CreateTopic(ctx, metastore.NewTopic{Name: req.Name, Partitions: partitions, Config: req.Configs,
		Candidates: b.aliveBrokers(), Placement: placement, By: "kafka client at " + b.cfg.BrokerID, CheckOnly: req.ValidateOnly})
	if err != nil {
		code, message := topicError(err)
		return wire.CreateTopicAnswer{Code: code, Message: message}
	}
	if !req.ValidateOnly {
		b.RowsChanged(ctx, metastore.Change{All: true}) // so that this broker's next Metadata answer knows it
	}
	return wire.CreateTopicAnswer{ID: topic.ID, Partitions: topic.Partitions, ReplicationFactor: 1}
}

// placement turns a manual assignment (node ids) into owners.
func (b *Broker) placement(req wire.CreateTopicRequest) (int32, map[int32]string, error) {
	if len(req.Assignment) == 0 {
		if req.Partitions == -1 {
			return 1, nil, nil
		}
		return req.Partitions, nil, nil
	}
	placement, err := b.placementByNode(0, req.Assignment)
	return int32(len(placement)), placement, err
}

// placementByNode names the owners of the partitions from first on.
func (b *Broker) placementByNode(first int32, assignment map[int32][]int32) (map[int32]string, error) {
	byNode := map[int32]string{}
	b.mu.RLock()
	for id, broker := range b.brokers {
		byNode[broker.NodeID] = id
	}
	b.mu.RUnlock()
	placement := map[int32]string{}
	for number := first; number < first+int32(len(assignment)); number++ {
		nodes := assignment[number]
		if len(nodes) != 1 || byNode[nodes[0]] == "" {
			return nil, fmt.Errorf("partition %d must name exactly one known broker", number)
		}
		placement[number] = byNode[nodes[0]]
	}
	return placement, nil
}

// AddPartitions implements wire.Broker.
func (b *Broker) AddPartitions(ctx context.Context, req wire.AddPartitionsRequest) (int16, string) {
	known := b.Routing().Topics[req.Topic]
	if known == nil {
		return kerr.UnknownTopicOrPartition.Code, fmt.Sprintf("there is no topic %q", req.Topic)
	}
	placement, err := b.placementByNode(int32(len(known.Partitions)), req.Assignment)
	if err != nil {
		return kerr.InvalidReplicaAssignment.Code, err.Error()
	}
	_, err = b.cfg.Rows.AddPartitions(ctx, metastore.MorePartitions{Topic: req.Topic, Total: req.Total, Candidates: b.aliveBrokers(), Placement: placement,
		By: "kafka client at " + b.cfg.BrokerID, CheckOnly: req.ValidateOnly})
	if _, refused := metastore.RefusedWith(err, metastore.CodeTopicExists, metastore.CodeInvalidTopic); refused {
		return kerr.InvalidPartitions.Code, err.Error()
	}
	if err != nil {
		return topicError(err)
	}
	if !req.ValidateOnly {
		b.RowsChanged(ctx, metastore.Change{All: true})
	}
	return 0, ""
}

// DeleteTopic implements wire.Broker.
func (b *Broker) DeleteTopic(ctx context.Context, name string, id uuid.UUID) (int16, string) {
	if err := b.cfg.Rows.DeleteTopic(ctx, name, id, "kafka client at "+b.cfg.BrokerID); err != nil {
		return topicError(err)
	}
	b.RowsChanged(ctx, metastore.Change{All: true})
	return 0, ""
}

func topicError(err error) (int16, string) {
	refused, ok := metastore.RefusedWith(err)
	if !ok {
		return kerr.RequestTimedOut.Code, "the metastore did not answer: " + err.Error()
	}
	switch refused.Code {
	case metastore.CodeTopicExists:
		return kerr.TopicAlreadyExists.Code, refused.Reason
	case metastore.CodeUnknownTopic:
		return kerr.UnknownTopicOrPartition.Code, refused.Reason
	case metastore.CodeUnknownBroker, metastore.CodeNoBroker:
		return kerr.BrokerNotAvailable.Code, refused.Reason
	case metastore.CodeInternalTopic:
		return kerr.TopicAuthorizationFailed.Code, refused.Reason
	default:
		return kerr.InvalidTopicException.Code, refused.Reason
	}
}
