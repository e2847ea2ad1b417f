package wire

import (
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Without access control a client may do everything there is; the bits are those of Kafka's AclOperation.
const (
	topicOperations   int32 = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	clusterOperations int32 = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
)

// handleMetadata never creates a topic, whatever AllowAutoTopicCreation says.
func handleMetadata(k *call) (kmsg.Response, error) {
	req := k.req.(*kmsg.MetadataRequest)
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	routing, err := k.routing()
	if err != nil {
		return nil, err
	}

	for _, n := range routing.Nodes {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = n.ID, n.Host, n.Port, orNull(n.Rack)
		resp.Brokers = append(resp.Brokers, b)
	}
	resp.ClusterID = &routing.ClusterID
	resp.ControllerID = routing.controller()
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOperations
	}

	// Version 0 has no null: there an empty list means all topics.
	if all := req.Topics == nil || k.version == 0 && len(req.Topics) == 0; all {
		for _, name := range slices.Sorted(maps.Keys(routing.Topics)) {
			resp.Topics = append(resp.Topics, describeTopic(routing, routing.Topics[name]))
		}
	}
	for _, t := range req.Topics {
		resp.Topics = append(resp.Topics, findTopic(routing, t))
	}
	if req.IncludeTopicAuthorizedOperations {
		for i := range resp.Topics {
			resp.Topics[i].AuthorizedOperations = topicOperations
		}
	}
	for i := range resp.Topics {
		k.sizeHint += 64 + 48*len(resp.Topics[i].Partitions)
	}
	return resp, nil
}

func findTopic(routing *Routing, asked kmsg.MetadataRequestTopic) kmsg.MetadataResponseTopic {
	missing := kmsg.NewMetadataResponseTopic()
	if asked.Topic != nil {
		if t := routing.Topics[*asked.Topic]; t != nil {
			return describeTopic(routing, t)
		}
		missing.Topic, missing.ErrorCode = asked.Topic, kerr.UnknownTopicOrPartition.Code
		return missing
	}
	if t := routing.TopicIDs[uuid.UUID(asked.TopicID)]; t != nil {
		return describeTopic(routing, t)
	}
	missing.TopicID, missing.ErrorCode = asked.TopicID, kerr.UnknownTopicID.Code
	return missing
}

func describeTopic(routing *Routing, t *Topic) kmsg.MetadataResponseTopic {
	rt := kmsg.NewMetadataResponseTopic()
	rt.Topic, rt.TopicID, rt.IsInternal = &t.Name, t.ID, t.Internal
	rt.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, len(t.Partitions))
	for _, p := range t.Partitions {
		rp := kmsg.NewMetadataResponseTopicPartition()
		rp.Partition = p.Partition
		rp.LeaderEpoch = p.LeaderEpoch // also without a leader: a client would take -1 for a way back
		if _, listed := routing.node(p.Leader); listed {
			rp.Leader = p.Leader
			rp.Replicas = []int32{p.Leader}
			rp.ISR = []int32{p.Leader}
		} else { // a client cannot use a leader without an address
			rp.Leader = -1
			rp.ErrorCode = kerr.LeaderNotAvailable.Code
		}
		rt.Partitions = append(rt.Partitions, rp)
	}
	return rt
}

func handleDescribeCluster(k *call) (kmsg.Response, error) {
	const brokerEndpoints, controllerEndpoints = 1, 2
	req := k.req.(*kmsg.DescribeClusterRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	routing, err := k.routing()
	if err != nil {
		return nil, err
	}
	resp.EndpointType = req.EndpointType
	switch req.EndpointType {
	case brokerEndpoints:
	case controllerEndpoints:
		resp.ErrorCode = kerr.MismatchedEndpointType.Code
		return resp, nil
	default:
		resp.ErrorCode = kerr.UnsupportedEndpointType.Code
		return resp, nil
	}
	resp.ClusterID = routing.ClusterID
	resp.ControllerID = routing.controller()
	for _, n := range routing.Nodes {
		b := kmsg.NewDescribeClusterResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = n.ID, n.Host, n.Port, orNull(n.Rack)
		resp.Brokers = append(resp.Brokers, b)
	}
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	return resp, nil
}
