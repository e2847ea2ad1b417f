package planner

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// HashOf is what Plan.Hash is of these actions in this fleet. It is over canonical bytes: every text with its length before it, every number with 8 bytes, so that two different
// lists of actions never read the same.
func HashOf(fleet string, actions []Action) string {
	h := sha256.New()
	buffer := make([]byte, 0, 1<<13)
	text := func(s string) {
		buffer = binary.BigEndian.AppendUint64(buffer, uint64(len(s)))
		buffer = append(buffer, s...)
	}
	text("portage plan 1")
	text(fleet)
	for i := range actions {
		text(actions[i].Kind)
		for _, l := range actions[i].Legs {
			text(l.Topic)
			text(l.TopicID)
			text(l.From)
			text(l.To)
			buffer = binary.BigEndian.AppendUint64(buffer, uint64(l.Partition))
			buffer = binary.BigEndian.AppendUint64(buffer, uint64(l.Version))
		}
		if len(buffer) > 1<<12 {
			h.Write(buffer)
			buffer = buffer[:0]
		}
	}
	h.Write(buffer)
	return hex.EncodeToString(h.Sum(nil))
}
