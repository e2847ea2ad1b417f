package planner

import "fmt"

// CheckSwap lists what stands against two partitions changing places; each side's facts name the other's owner as its
// destination. An empty list means it may start; the claim checks again under lock.
func CheckSwap(a, b MoveFacts) []Objection {
	var against []Objection
	for _, side := range []MoveFacts{a, b} {
		if !side.TopicExists || !side.PartitionExists {
			against = append(against, CheckMove(side)...) // the other side has no destination to be checked with
		}
	}
	if len(against) > 0 {
		return against
	}
	if a.Owner == b.Owner {
		return []Objection{{Code: "same_owner", Reason: fmt.Sprintf("%s/%d and %s/%d are both on %s; there is nothing to swap", a.Topic, a.Partition, b.Topic, b.Partition, a.Owner)}}
	}
	return append(CheckMove(a), CheckMove(b)...)
}

// OnlyRoom reports whether too little room is all that stands against something.
func OnlyRoom(against []Objection) bool {
	for _, o := range against {
		if o.Code != "too_little_room" {
			return false
		}
	}
	return len(against) > 0
}
