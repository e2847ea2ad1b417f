package planner

import "fmt"

// MoveFacts is what is known about a wanted move of one single-owner partition before anything is done.
type MoveFacts struct {
	Topic           string
	Partition       int32
	TopicExists     bool
	PartitionExists bool
	Partitions      int32 // of the topic
	Internal        bool
	Owner           string
	MovingUnder     string // the workflow of the move in progress, empty when stable
	To              string
	TargetExists    bool
	TargetRemoved   bool
	TargetDraining  bool
	TargetAlive     bool
	PartitionBytes  int64 // -1 when the owner did not answer
	TargetRoomBytes int64 // free, less what other moves have reserved there
}

// CodeBrokerDead objects to a destination whose agent does not answer.
const CodeBrokerDead = "broker_dead"

// Objection is one reason why a move can not start: a stable code and a sentence that says what to do.
type Objection struct {
	Code   string `json:"code"`
	Reason string `json:"reason"`
}

// CheckMove lists what stands against a move, the hard rules of placement first. An empty list means it may start; the
// claim checks again under lock.
func CheckMove(f MoveFacts) []Objection {
	name := fmt.Sprintf("%s/%d", f.Topic, f.Partition)
	var against []Objection
	object := func(code, format string, args ...any) {
		against = append(against, Objection{Code: code, Reason: fmt.Sprintf(format, args...)})
	}
	switch {
	case !f.TopicExists:
		object("unknown_topic", "there is no topic %q; check the name", f.Topic)
		return against
	case f.Internal:
		object("internal_topic", "topic %q is internal and never moves", f.Topic)
	case !f.PartitionExists:
		object("unknown_partition", "topic %q has partitions 0 to %d, there is no %d", f.Topic, f.Partitions-1, f.Partition)
		return against
	}
	if f.MovingUnder != "" {
		object("already_moving", "%s is already moving under workflow %q; wait for it or cancel it", name, f.MovingUnder)
	}
	switch {
	case !f.TargetExists:
		object("unknown_broker", "there is no broker %q; `portage cluster members` lists them", f.To)
		return against
	case f.TargetRemoved:
		object("broker_removed", "broker %q was removed from the fleet", f.To)
		return against
	case f.Owner == f.To:
		object("already_owner", "%s is already on %s; nothing to do", name, f.To)
		return against
	case f.TargetDraining:
		object("broker_draining", "broker %q is draining and takes no partitions; choose another", f.To)
	}
	if !f.TargetAlive {
		object(CodeBrokerDead, "broker %q does not answer; start its agent or choose another", f.To)
	} else if need := f.PartitionBytes + f.PartitionBytes/10; f.PartitionBytes >= 0 && need > f.TargetRoomBytes {
		object("too_little_room", "%s needs %d MiB on %s, which has room for %d MiB beside the moves in flight; free space or choose another broker",
			name, need>>20, f.To, max(0, f.TargetRoomBytes)>>20)
	}
	return against
}
