package protocol

import (
	"fmt"
	"strings"
)

// SwapInput asks for two partitions of two brokers to change places: each goes to where the other is, and both flip in one
// transaction, or neither. Only a and b are needed.
type SwapInput struct {
	A SwapPartition `json:"a"`
	B SwapPartition `json:"b"`
	// By and Reason are recorded with both sides.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Limit paces each of the two copies, in bytes a second: "64MiB". Empty: no limit of its own.
	Limit ByteSize `json:"limit,omitempty"`
	// Force accepts an expected freeze above the limit of 30 s. Both copies must have come near their tails all the same (R32).
	Force bool `json:"force,omitempty"`
	// TwoMoves: where there is too little room for both at once, one partition is moved after the other. Then they do not
	// flip together, and the first stays moved when the second can not follow.
	TwoMoves bool `json:"twoMoves,omitempty"`
	// Plan and PlanSeq name the action of a plan that this swap carries out; both sides' rows carry them.
	Plan    string `json:"plan,omitempty"`
	PlanSeq int    `json:"planSeq,omitempty"`
	// Earlier is what the workflow's earlier runs left; nobody else sets it.
	Earlier *EarlierRuns `json:"earlier,omitempty"`
}

// SwapPartition names one side of a swap.
type SwapPartition struct {
	Topic     string `json:"topic"`
	Partition *int32 `json:"partition"`
	// Expect is what this side's row must be for the swap to begin; a rebalance gives what its plan was made of.
	Expect *Expect `json:"expect,omitempty"`
}

// String is the partition as people write it: "orders/3".
func (p SwapPartition) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.number()) }

func (p SwapPartition) number() int32 {
	if p.Partition == nil {
		return 0
	}
	return *p.Partition
}

// Sides are both partitions in the order they were given.
func (in SwapInput) Sides() [2]SwapPartition { return [2]SwapPartition{in.A, in.B} }

// MoveTo is what one side of the swap is as a move of its own. It is never promoted (R32).
func (in SwapInput) MoveTo(side int, to string) MoveInput {
	p := in.Sides()[side]
	return MoveInput{Topic: p.Topic, Partition: p.Partition, To: to, By: in.By, Reason: in.Reason, Limit: in.Limit, Force: in.Force, OnSourceLoss: LossNever,
		Plan: in.Plan, PlanSeq: in.PlanSeq}
}

// ParseSwapInput reads an input strictly: an unknown key is an error, never a default, and every fault is named at once.
func ParseSwapInput(raw []byte) (SwapInput, error) {
	var in SwapInput
	if err := decodeStrictly(raw, &in, "swap", `{"a":{"topic":"orders","partition":3},"b":{"topic":"payments","partition":1}}`); err != nil {
		return in, err
	}
	faults := append(partitionFaults(in.A.Topic, in.A.Partition, "a."), partitionFaults(in.B.Topic, in.B.Partition, "b.")...)
	if len(faults) == 0 && in.A.String() == in.B.String() {
		faults = append(faults, fmt.Sprintf(`"a" and "b" are both %s`, in.A))
	}
	if len(faults) > 0 {
		return in, fmt.Errorf("the swap can not start: %s", strings.Join(faults, "; "))
	}
	return in, nil
}

// SwapClaimArgs is the input of the SwapClaim activity.
type SwapClaimArgs struct {
	SwapID string `json:"swapId"`
	// Attempt counts the claims of one workflow from 1, as in ClaimArgs.
	Attempt int       `json:"attempt"`
	Input   SwapInput `json:"input"`
}

// SwapClaim is a swap's hold on both partitions.
type SwapClaim struct {
	Sides [2]Claim `json:"sides"`
}

// SwapCutoverArgs is the input of the SwapCutover activity.
type SwapCutoverArgs struct {
	Sides [2]CutoverArgs `json:"sides"`
}

// SwapEvidence is what a cutover of both sides proves.
type SwapEvidence struct {
	Sides [2]Evidence `json:"sides"`
}

// SwapCommitArgs is the input of the SwapCommit activity.
type SwapCommitArgs struct {
	SwapID string        `json:"swapId"`
	Sides  [2]CommitArgs `json:"sides"`
}

// SwapCommitted are the epochs that a committed swap began.
type SwapCommitted struct {
	Epochs [2]int32 `json:"epochs"`
}

// SwapAbortArgs is the input of the SwapAbort activity.
type SwapAbortArgs struct {
	SwapID string       `json:"swapId"`
	Sides  [2]AbortArgs `json:"sides"`
}

// SideStatus is one side of a swap in its status.
type SideStatus struct {
	Topic       string  `json:"topic"`
	Partition   int32   `json:"partition"`
	From        string  `json:"from,omitempty"`
	To          string  `json:"to,omitempty"` // the other side's broker; empty until the claim
	MoveID      string  `json:"moveId,omitempty"`
	IsOn        string  `json:"isOn,omitempty"`
	ShouldBeOn  string  `json:"shouldBeOn,omitempty"`
	BytesDone   int64   `json:"bytesDone"`
	BytesTotal  int64   `json:"bytesTotal"`
	BytesPerSec float64 `json:"bytesPerSec,omitempty"`
	Converged   *bool   `json:"converged,omitempty"`
	FrozenMS    float64 `json:"frozenMs,omitempty"`
}

// String is the partition as people write it: "orders/3".
func (s SideStatus) String() string { return fmt.Sprintf("%s/%d", s.Topic, s.Partition) }

// Took takes one copy's progress into the status: that of the side it is of, and the sums of both.
func (s *Status) Took(p Progress) {
	if p.BytesTotal <= 0 {
		return
	}
	if len(s.Sides) == 0 {
		s.BytesDone, s.BytesTotal, s.BytesPerSec = p.BytesDone, p.BytesTotal, p.BytesPerSec
		return
	}
	s.BytesDone, s.BytesTotal, s.BytesPerSec = 0, 0, 0
	for i := range s.Sides {
		side := &s.Sides[i]
		if side.MoveID == p.MoveID {
			side.BytesDone, side.BytesTotal, side.BytesPerSec = p.BytesDone, p.BytesTotal, p.BytesPerSec
		}
		s.BytesDone, s.BytesTotal, s.BytesPerSec = s.BytesDone+side.BytesDone, s.BytesTotal+side.BytesTotal, s.BytesPerSec+side.BytesPerSec
	}
}

// How a swap was carried out.
const (
	SwapFull     = "full"      // both sides flipped in one transaction
	SwapTwoMoves = "two moves" // too little room for both at once: one partition was moved after the other
)

// SwapResult is how a swap that was carried out ended.
type SwapResult struct {
	SwapID   string        `json:"swapId,omitempty"` // empty for two moves, which have ids of their own
	How      string        `json:"how"`              // SwapFull or SwapTwoMoves
	Sides    [2]MoveResult `json:"sides"`            // in the order they were given
	Attempts int           `json:"attempts"`
	TooLate  string        `json:"tooLate,omitempty"`
}

// SwapOwners are the brokers of both partitions of a swap.
type SwapOwners struct {
	Brokers [2]string `json:"brokers"`
}

// SwapSideID is the move id of one side of a swap; side is 0 or 1. The metastore gives the same.
func SwapSideID(swapID string, side int) string { return swapID + "." + itoa(int32(side)) }

// SeenFrom is the status as it concerns one partition: of a swap, that of its side.
func (s Status) SeenFrom(topic string, partition int32) Status {
	for _, side := range s.Sides {
		if side.Topic == topic && side.Partition == partition {
			s.Topic, s.Partition, s.From, s.To, s.MoveID, s.IsOn, s.ShouldBeOn = side.Topic, side.Partition, side.From, side.To, side.MoveID, side.IsOn, side.ShouldBeOn
		}
	}
	return s
}

// With names the other partition of a swap, "" for a move.
func (s Status) With() string {
	for _, side := range s.Sides {
		if side.Topic != s.Topic || side.Partition != s.Partition {
			return side.String()
		}
	}
	return ""
}
