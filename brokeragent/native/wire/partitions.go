package wire

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AddPartitionsRequest asks for more partitions of one topic.
type AddPartitionsRequest struct {
	Topic        string
	Total        int32             // how many there are afterwards
	Assignment   map[int32][]int32 // partition number to node ids, of the new ones; empty: the broker chooses
	ValidateOnly bool
}

func handleCreatePartitions(k *call) (kmsg.Response, error) {
	req := k.req.(*kmsg.CreatePartitionsRequest)
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	routing, err := k.routing()
	if err != nil {
		return nil, err
	}
	ctx, cancel := k.within(req.TimeoutMillis)
	defer cancel()

	times := map[string]int{}
	for _, t := range req.Topics {
		times[t.Topic]++
	}
	for _, t := range req.Topics {
		rt := kmsg.NewCreatePartitionsResponseTopic()
		rt.Topic = t.Topic
		message := ""
		add, refused, why := addPartitions(t, routing.Topics[t.Topic], req.ValidateOnly)
		switch {
		case times[t.Topic] > 1:
			rt.ErrorCode, message = kerr.InvalidRequest.Code, "the request names this topic more than once"
		case refused != nil:
			rt.ErrorCode, message = refused.Code, why
		default:
			rt.ErrorCode, message = k.srv.broker.AddPartitions(ctx, add)
		}
		rt.ErrorMessage = orNull(message)
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

// addPartitions checks what is the protocol's own rule; the rest is the broker's.
func addPartitions(t kmsg.CreatePartitionsRequestTopic, known *Topic, validateOnly bool) (AddPartitionsRequest, *kerr.Error, string) {
	add := AddPartitionsRequest{Topic: t.Topic, Total: t.Count, ValidateOnly: validateOnly}
	if known == nil {
		return add, kerr.UnknownTopicOrPartition, "there is no such topic"
	}
	have := int32(len(known.Partitions))
	if t.Count <= have {
		return add, kerr.InvalidPartitions, "the number of partitions can only grow"
	}
	if t.Assignment == nil {
		return add, nil, ""
	}
	if int32(len(t.Assignment)) != t.Count-have {
		return add, kerr.InvalidReplicaAssignment, "the assignment must name the new partitions and no others"
	}
	add.Assignment = map[int32][]int32{}
	for i, a := range t.Assignment {
		add.Assignment[have+int32(i)] = a.Replicas
	}
	return add, nil, ""
}
