package wire

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func handleCreateTopics(k *call) (kmsg.Response, error) {
	req := k.req.(*kmsg.CreateTopicsRequest)
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	if _, err := k.routing(); err != nil {
		return nil, err
	}
	ctx, cancel := k.within(req.TimeoutMillis)
	defer cancel()

	times := map[string]int{}
	for _, t := range req.Topics {
		times[t.Topic]++
	}
	for _, t := range req.Topics {
		rt := kmsg.NewCreateTopicsResponseTopic()
		rt.Topic = t.Topic
		rt.Configs = []kmsg.CreateTopicsResponseTopicConfig{} // Java does not survive a null
		var a CreateTopicAnswer
		create, refused, why := createTopic(t, k.version, req.ValidateOnly)
		switch {
		case times[t.Topic] > 1:
			a = CreateTopicAnswer{Code: kerr.InvalidRequest.Code, Message: "the request names this topic more than once"}
		case refused != nil:
			a = CreateTopicAnswer{Code: refused.Code, Message: why}
		default:
			a = k.srv.broker.CreateTopic(ctx, create)
		}
		rt.ErrorCode, rt.ErrorMessage = a.Code, orNull(a.Message)
		if a.Code == 0 {
			rt.TopicID, rt.NumPartitions, rt.ReplicationFactor = a.ID, a.Partitions, a.ReplicationFactor
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

// createTopic checks what is the protocol's own rule; the rest is the broker's.
func createTopic(t kmsg.CreateTopicsRequestTopic, version int16, validateOnly bool) (CreateTopicRequest, *kerr.Error, string) {
	const firstWithDefaults = 4 // -1 asks for the fleet's default
	create := CreateTopicRequest{
		Name:              t.Topic,
		Partitions:        t.NumPartitions,
		ReplicationFactor: t.ReplicationFactor,
		Configs:           map[string]string{},
		ValidateOnly:      validateOnly,
	}
	for _, c := range t.Configs {
		if c.Value != nil { // null asks for the default
			create.Configs[c.Name] = *c.Value
		}
	}
	if len(t.ReplicaAssignment) > 0 {
		if t.NumPartitions != -1 || t.ReplicationFactor != -1 {
			return create, kerr.InvalidRequest, "partitions and replication factor must be -1 beside a replica assignment"
		}
		create.Assignment = map[int32][]int32{}
		for _, a := range t.ReplicaAssignment {
			if _, twice := create.Assignment[a.Partition]; twice {
				return create, kerr.InvalidReplicaAssignment, "a partition is assigned twice"
			}
			create.Assignment[a.Partition] = a.Replicas
		}
		return create, nil, ""
	}
	if t.NumPartitions == 0 || t.NumPartitions < -1 || t.NumPartitions == -1 && version < firstWithDefaults {
		return create, kerr.InvalidPartitions, "the number of partitions must be positive"
	}
	if t.ReplicationFactor == 0 || t.ReplicationFactor < -1 || t.ReplicationFactor == -1 && version < firstWithDefaults {
		return create, kerr.InvalidReplicationFactor, "the replication factor must be positive"
	}
	return create, nil, ""
}

func handleDeleteTopics(k *call) (kmsg.Response, error) {
	req := k.req.(*kmsg.DeleteTopicsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	routing, err := k.routing()
	if err != nil {
		return nil, err
	}
	ctx, cancel := k.within(req.TimeoutMillis)
	defer cancel()

	topics := req.Topics
	for _, name := range req.TopicNames { // before version 6
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &name
		topics = append(topics, t)
	}
	for _, t := range topics {
		rt := kmsg.NewDeleteTopicsResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		id := uuid.UUID(t.TopicID)
		message := ""
		switch {
		case t.Topic != nil && id != uuid.Nil:
			rt.ErrorCode, message = kerr.InvalidRequest.Code, "a topic is named by its name or its id, not both"
		case t.Topic != nil && *t.Topic == "", t.Topic == nil && id == uuid.Nil:
			rt.ErrorCode, message = kerr.InvalidRequest.Code, "neither a name nor an id"
		case t.Topic != nil:
			if known := routing.Topics[*t.Topic]; known != nil {
				rt.TopicID = known.ID
			}
			rt.ErrorCode, message = k.srv.broker.DeleteTopic(ctx, *t.Topic, uuid.Nil)
		default:
			if known := routing.TopicIDs[id]; known != nil {
				rt.Topic = &known.Name
			}
			rt.ErrorCode, message = k.srv.broker.DeleteTopic(ctx, "", id)
		}
		rt.ErrorMessage = orNull(message)
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

// within bounds a request by the client's own timeout.
func (k *call) within(millis int32) (context.Context, context.CancelFunc) {
	if millis <= 0 {
		return context.WithCancel(k.conn.work)
	}
	return context.WithTimeout(k.conn.work, time.Duration(millis)*time.Millisecond)
}
