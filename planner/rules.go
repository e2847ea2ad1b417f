package planner

// Codes of the hard rules: why a partition does not move, and why a broker is not its destination. They never bend.
const (
	CodeInternalTopic    = "internal_topic"    // M3
	CodeAlreadyMoving    = "already_moving"    // a move of it is in progress
	CodePartitionCooling = "partition_cooling" // it was moved lately (F27); a drain does not wait for it
	CodeReplicated       = "replicated"        // it has followers; planned are moves of single-owner partitions
	CodeBrokerDraining   = "broker_draining"
	CodeBrokerCooling    = "broker_cooling" // it took part in moves lately (F27); a drain does not wait for it
	CodeTooLittleRoom    = "too_little_room"
	CodeCopyThere        = "copy_there"       // one copy per broker
	CodeRackTaken        = "rack_taken"       // another copy is in the broker's rack
	CodeLoadUntrusted    = "load_untrusted"   // too few samples (M38)
	CodeRecoveryPending  = "recovery_pending" // recovery goes before balance (F27)
)

// sourceRule is the code of the hard rule that keeps a partition where it is; empty when it may move. A drain does not
// wait for cooldowns.
func (s *Snapshot) sourceRule(i int32, draining bool) string {
	f := s.flags[i]
	switch {
	case f&internal != 0:
		return CodeInternalTopic
	case s.target[i] != none:
		return CodeAlreadyMoving
	case !s.Brokers[s.owner[i]].Alive:
		return CodeBrokerDead
	case f&replicated != 0:
		return CodeReplicated
	case f&cooling != 0 && !draining:
		return CodePartitionCooling
	}
	return ""
}

// brokerRule is the code of the hard rule by which a broker takes no partition at all; empty when it may.
func (s *Snapshot) brokerRule(b int32, draining bool) string {
	switch broker := &s.Brokers[b]; {
	case !broker.Alive:
		return CodeBrokerDead
	case broker.Draining:
		return CodeBrokerDraining
	case s.brokerCooling[b] && !draining:
		return CodeBrokerCooling
	}
	return ""
}

// copyRule is the code of the hard rule by which a broker does not take this partition because of its other copies.
func (s *Snapshot) copyRule(i, b int32) string {
	for _, f := range s.followersOf(i) {
		switch {
		case f.broker == b:
			return CodeCopyThere
		case s.Brokers[b].Rack != "" && s.Brokers[f.broker].Rack == s.Brokers[b].Rack:
			return CodeRackTaken
		}
	}
	return ""
}

// ruleSentence tells a rule of the source as a person reads it.
func ruleSentence(code string) string {
	switch code {
	case CodeInternalTopic:
		return "its topic is internal and never moves"
	case CodeAlreadyMoving:
		return "a move of it is in progress; wait for it or cancel it"
	case CodeBrokerDead:
		return "its owner does not answer; start the owner's agent"
	case CodeReplicated:
		return "it has followers: move its copies one by one"
	case CodePartitionCooling:
		return "it was moved lately and is left alone until its cooldown ends"
	case CodeTooLittleRoom:
		return "no broker is in service that has room for it beside what is on its way there; add a broker, or free space"
	case CodeCopyThere, CodeRackTaken:
		return "every broker in service has a copy of it, or shares a rack with one; add a broker"
	}
	return ""
}

// rooms is what is free at each broker, less what is on its way there (ES#45177: what is on its way fills a disk too).
type rooms struct {
	free    []int64
	unknown []bool
	margin  float64
}

func newRooms(s *Snapshot, margin float64) rooms {
	r := rooms{make([]int64, len(s.Brokers)), make([]bool, len(s.Brokers)), margin}
	for b := range s.Brokers {
		r.free[b], r.unknown[b] = s.Brokers[b].DiskFreeBytes, s.Brokers[b].DiskBytes == 0
	}
	for i := range s.target {
		if to := s.target[i]; to != none {
			r.free[to] -= s.bytesTo(int32(i), to)
		}
	}
	return r
}

// fits reports whether there is room at a broker for bytes more, with the margin.
func (r *rooms) fits(b int32, bytes int64) bool {
	return bytes == 0 || r.unknown[b] || float64(bytes)*(1+r.margin) <= float64(r.free[b])
}
