package protocol

import (
	"fmt"
	"strings"
	"time"

	"portage/planner"
)

// DecommissionInput asks for one broker to be emptied and taken out of the fleet. Only broker is needed.
type DecommissionInput struct {
	Broker string `json:"broker"`
	// DryRun only says what would move, how many bytes, for how long, and what would block.
	DryRun bool `json:"dryRun,omitempty"`
	// MinBrokers is how many brokers that take partitions stay at least; MinBrokersDefault when absent.
	MinBrokers *int   `json:"minBrokers,omitempty"`
	Limits            // of the moves
	By         string `json:"by,omitempty"`
	Reason     string `json:"reason,omitempty"`
	// Carried is what earlier runs of the workflow did; it is not for people.
	Carried *DecommissionCarried `json:"carried,omitempty"`
}

// DecommissionCarried goes from run to run of one decommission, whose broker drains since the first.
type DecommissionCarried struct {
	Rounds int             `json:"rounds"`
	Counts RebalanceCounts `json:"counts"`
}

// MinBrokersDefault is how many brokers stay unless the input says otherwise.
const MinBrokersDefault = 3

// Least is MinBrokers with its default.
func (in DecommissionInput) Least() int {
	if in.MinBrokers == nil {
		return MinBrokersDefault
	}
	return *in.MinBrokers
}

// ParseDecommissionInput reads an input strictly, every fault named at once.
func ParseDecommissionInput(raw []byte) (DecommissionInput, error) {
	var in DecommissionInput
	if err := decodeStrictly(raw, &in, "decommission", `{"broker":"b4"}`); err != nil {
		return in, err
	}
	faults := in.Limits.Faults()
	if in.Broker == "" {
		faults = append(faults, `"broker" is missing`)
	}
	if in.Least() < 1 {
		faults = append(faults, `"minBrokers" is below 1`)
	}
	if len(faults) > 0 {
		return in, fmt.Errorf("the decommission can not start: %s", strings.Join(faults, "; "))
	}
	return in, nil
}

// DrainArgs is the input of the activities of a decommission.
type DrainArgs struct {
	Broker     string `json:"broker"`
	MinBrokers int    `json:"minBrokers"`
	By         string `json:"by,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

// DrainCheck is what stands against a decommission, and what it would take.
type DrainCheck struct {
	// Refused are the guards that refuse it, all of them.
	Refused []planner.Objection `json:"refused,omitempty"`
	// Waits is what it would wait for once it has begun, at most MostShown.
	Waits    []planner.Blocked `json:"waits,omitempty"`
	Draining bool              `json:"draining"`
	Removed  bool              `json:"removed,omitempty"`
	Owned    int               `json:"owned"` // partitions the broker owns
	Inbound  int               `json:"inbound"`
	Moves    int               `json:"moves"`
	Bytes    int64             `json:"bytes"`
	ETA      Duration          `json:"eta"`
	Text     []string          `json:"text,omitempty"`
}

// RemoveResult says how a removal ended; Refused is nil when the broker is removed.
type RemoveResult struct {
	Refused *planner.Objection `json:"refused,omitempty"`
}

// Phases of a decommission.
const (
	PhaseChecking = "checking"
	PhaseDraining = "draining"
	PhaseShedding = "shedding"
	PhaseRemoving = "removing"
	PhaseSafe     = "safe to remove"
)

// DecommissionStatus is the answer of a decommission's Status query.
type DecommissionStatus struct {
	Broker        string            `json:"broker"`
	Phase         string            `json:"phase"`
	Since         time.Time         `json:"since"`
	Check         DrainCheck        `json:"check"` // the last one
	Rounds        int               `json:"rounds"`
	Counts        RebalanceCounts   `json:"counts"`
	Waits         []planner.Blocked `json:"waits,omitempty"`
	Blocked       string            `json:"blocked,omitempty"`
	BlockedReason string            `json:"blockedReason,omitempty"`
	Unblock       string            `json:"unblock,omitempty"`
	Rebalance     string            `json:"rebalance,omitempty"` // workflow id of the moves
	By            string            `json:"by,omitempty"`
	Reason        string            `json:"reason,omitempty"`
}

// DecommissionResult is the verdict.
type DecommissionResult struct {
	Broker string `json:"broker"`
	// Safe: the broker is out of the fleet, nothing is on it that anybody needs; its machine may go.
	Safe    bool            `json:"safe"`
	Verdict string          `json:"verdict"`
	Check   DrainCheck      `json:"check"` // of a dry run
	Counts  RebalanceCounts `json:"counts"`
}

// VerdictSafe is the verdict a deployment script waits for.
const VerdictSafe = "safe to remove"

// DecommissionWorkflowID is the id under which the command line decommissions a broker.
func DecommissionWorkflowID(broker string) string { return "decommission:" + broker }

// ShedWorkflowID is the rebalance by which a decommission empties its broker.
func ShedWorkflowID(broker string) string { return "rebalance:" + DecommissionWorkflowID(broker) }
