package wire

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleFindCoordinator names this very broker for every group: without group membership there is nothing to be
// coordinated, and any broker hands a commit on to the owner of its partition.
func handleFindCoordinator(k *call) (kmsg.Response, error) {
	const groupType, transactionType = 0, 1
	req := k.req.(*kmsg.FindCoordinatorRequest)
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	routing, err := k.routing()
	if err != nil {
		return nil, err
	}

	self, listed := routing.node(k.srv.broker.NodeID())
	var refused *kerr.Error
	message := ""
	switch {
	case req.CoordinatorType == transactionType:
		refused, message = kerr.TransactionalIDAuthorizationFailed, noTransactions
	case req.CoordinatorType != groupType:
		refused, message = kerr.InvalidRequest, "only groups have coordinators here"
	case !listed:
		refused, message = kerr.CoordinatorNotAvailable, "this broker is not in the routing table yet"
	}
	if refused != nil {
		self = Node{ID: -1, Port: -1}
	}
	code := codeOf(refused)

	if k.version < 4 {
		resp.ErrorCode, resp.ErrorMessage = code, orNull(message)
		resp.NodeID, resp.Host, resp.Port = self.ID, self.Host, self.Port
		return resp, nil
	}
	for _, key := range req.CoordinatorKeys {
		rc := kmsg.NewFindCoordinatorResponseCoordinator()
		rc.Key = key
		rc.ErrorCode, rc.ErrorMessage = code, orNull(message)
		rc.NodeID, rc.Host, rc.Port = self.ID, self.Host, self.Port
		resp.Coordinators = append(resp.Coordinators, rc)
	}
	return resp, nil
}

// handleOffsetCommit stores all the offsets of a request with one call, so that one code can answer them all (R27 v).
func handleOffsetCommit(k *call) (kmsg.Response, error) {
	req := k.req.(*kmsg.OffsetCommitRequest)
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	routing, err := k.routing()
	if err != nil {
		return nil, err
	}

	whole := int16(0)
	var codes map[PartitionRef]int16
	if req.Generation >= 0 || req.MemberID != "" {
		whole = kerr.UnknownMemberID.Code // there are no members, only consumers that assign themselves
	} else if commits := knownCommits(req, routing); len(commits) > 0 {
		whole, codes = k.srv.broker.CommitOffsets(k.conn.work, req.Group, commits)
	}

	for _, t := range req.Topics {
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition = p.Partition
			ref, known := routing.partition(t.Topic, p.Partition)
			code, answered := codes[ref]
			switch {
			case whole != 0:
				rp.ErrorCode = whole
			case !known:
				rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
			case p.Offset < 0:
				rp.ErrorCode = kerr.InvalidCommitOffsetSize.Code
			case !answered: // never taken for a success
				rp.ErrorCode = kerr.UnknownServerError.Code
			default:
				rp.ErrorCode = code
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

// knownCommits leaves out what the table does not know, and negative offsets: -1 means "none" when it is read back.
func knownCommits(req *kmsg.OffsetCommitRequest, routing *Routing) []OffsetCommit {
	var commits []OffsetCommit
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			ref, known := routing.partition(t.Topic, p.Partition)
			if !known || p.Offset < 0 {
				continue
			}
			c := OffsetCommit{PartitionRef: ref, CommittedOffset: CommittedOffset{Offset: p.Offset, LeaderEpoch: p.LeaderEpoch}}
			if p.Metadata != nil {
				c.Metadata = *p.Metadata
			}
			commits = append(commits, c)
		}
	}
	return commits
}

func handleOffsetFetch(k *call) (kmsg.Response, error) {
	req := k.req.(*kmsg.OffsetFetchRequest)
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	routing, err := k.routing()
	if err != nil {
		return nil, err
	}
	if k.version >= 8 {
		for _, g := range req.Groups {
			resp.Groups = append(resp.Groups, k.fetchGroup(routing, g))
		}
		return resp, nil
	}

	// Before version 8 a request is about one group, in fields of its own.
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = req.Group
	if req.Topics != nil {
		g.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, 0, len(req.Topics))
	}
	for _, t := range req.Topics {
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.Partitions = t.Topic, t.Partitions
		g.Topics = append(g.Topics, gt)
	}
	answer := k.fetchGroup(routing, g)
	resp.ErrorCode = answer.ErrorCode
	if answer.ErrorCode != 0 && k.version < 2 {
		answer.Topics = failedPartitions(g, answer.ErrorCode) // version 1 has no place for one code
	}
	for _, t := range answer.Topics {
		rt := kmsg.NewOffsetFetchResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetFetchResponseTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch = p.Partition, p.Offset, p.LeaderEpoch
			rp.Metadata, rp.ErrorCode = p.Metadata, p.ErrorCode
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

// fetchGroup reads one group. Nil topics ask for all it ever committed.
func (k *call) fetchGroup(routing *Routing, g kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	answer := kmsg.NewOffsetFetchResponseGroup()
	answer.Group = g.Group
	if g.MemberID != nil && g.MemberEpoch >= 0 {
		answer.ErrorCode = kerr.UnknownMemberID.Code
		return answer
	}
	if g.Topics == nil {
		whole, offsets := k.srv.broker.FetchOffsets(k.conn.work, g.Group, nil)
		answer.ErrorCode = whole
		if whole == 0 {
			answer.Topics = allOffsets(offsets)
		}
		return answer
	}

	refs := []PartitionRef{}
	for _, t := range g.Topics {
		for _, p := range t.Partitions {
			if ref, known := routing.partition(t.Topic, p); known {
				refs = append(refs, ref)
			}
		}
	}
	var offsets map[PartitionRef]CommittedOffset
	if len(refs) > 0 { // an empty list must not turn into the nil that means all
		if answer.ErrorCode, offsets = k.srv.broker.FetchOffsets(k.conn.work, g.Group, refs); answer.ErrorCode != 0 {
			return answer
		}
	}
	for _, t := range g.Topics {
		rt := kmsg.NewOffsetFetchResponseGroupTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			ref, known := routing.partition(t.Topic, p)
			if !known {
				rt.Partitions = append(rt.Partitions, failedOffset(p, kerr.UnknownTopicOrPartition.Code))
				continue
			}
			o, answered := offsets[ref]
			if !answered { // R13: "none" is the owner's to say; the whole group has to ask again
				answer.ErrorCode, answer.Topics = kerr.CoordinatorLoadInProgress.Code, nil
				return answer
			}
			rt.Partitions = append(rt.Partitions, offsetOf(p, o))
		}
		answer.Topics = append(answer.Topics, rt)
	}
	return answer
}

func allOffsets(offsets map[PartitionRef]CommittedOffset) []kmsg.OffsetFetchResponseGroupTopic {
	byTopic := map[string]*kmsg.OffsetFetchResponseGroupTopic{}
	for ref, o := range offsets {
		t := byTopic[ref.Topic]
		if t == nil {
			fresh := kmsg.NewOffsetFetchResponseGroupTopic()
			fresh.Topic = ref.Topic
			t = &fresh
			byTopic[ref.Topic] = t
		}
		t.Partitions = append(t.Partitions, offsetOf(ref.Partition, o))
	}
	var topics []kmsg.OffsetFetchResponseGroupTopic
	for _, name := range slices.Sorted(maps.Keys(byTopic)) {
		t := byTopic[name]
		slices.SortFunc(t.Partitions, func(a, b kmsg.OffsetFetchResponseGroupTopicPartition) int {
			return int(a.Partition) - int(b.Partition)
		})
		topics = append(topics, *t)
	}
	return topics
}

func offsetOf(partition int32, o CommittedOffset) kmsg.OffsetFetchResponseGroupTopicPartition {
	if o.Code != 0 {
		return failedOffset(partition, o.Code)
	}
	rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = partition, o.Offset, o.LeaderEpoch, &o.Metadata
	return rp
}

func failedOffset(partition int32, code int16) kmsg.OffsetFetchResponseGroupTopicPartition {
	none := ""
	rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata, rp.ErrorCode = partition, -1, -1, &none, code
	return rp
}

func failedPartitions(g kmsg.OffsetFetchRequestGroup, code int16) []kmsg.OffsetFetchResponseGroupTopic {
	var topics []kmsg.OffsetFetchResponseGroupTopic
	for _, t := range g.Topics {
		rt := kmsg.NewOffsetFetchResponseGroupTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rt.Partitions = append(rt.Partitions, failedOffset(p, code))
		}
		topics = append(topics, rt)
	}
	return topics
}

func codeOf(e *kerr.Error) int16 {
	if e == nil {
		return 0
	}
	return e.Code
}
