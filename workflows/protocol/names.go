// Package protocol holds what crosses between workflows, activities, the worker and the command line: every wire name in
// one block, and the JSON of inputs, results, signals and queries. It imports neither network nor database code.
package protocol

import "strings"

// TaskQueue is the default queue of a fleet's workers.
const TaskQueue = "portage"

// Workflow, activity, query and signal names as Temporal sees them. They are recorded in histories: never rename one.
const (
	WorkflowMove       = "Move"
	WorkflowSwap       = "Swap"
	WorkflowSupervisor = "Supervisor"

	WorkflowRebalance    = "Rebalance"
	WorkflowDecommission = "Decommission"
	WorkflowAutobalance  = "Autobalance"

	ActivityClaim   = "Claim"
	ActivityEnsure  = "Ensure"
	ActivityCopy    = "Copy"
	ActivityCutover = "Cutover"
	ActivityCommit  = "Commit"
	ActivityFinish  = "Finish"
	ActivityAbort   = "Abort"
	ActivityPace    = "Pace"

	ActivityWatchSource = "WatchSource"
	ActivityPromote     = "Promote"

	// The steps of a swap that are one for both sides; the others are those of a move, once a side.
	ActivitySwapClaim   = "SwapClaim"
	ActivitySwapCutover = "SwapCutover"
	ActivitySwapCommit  = "SwapCommit"
	ActivitySwapAbort   = "SwapAbort"
	ActivitySwapOwners  = "SwapOwners"

	ActivitySupervise = "Supervise"

	ActivityPlan          = "Plan"
	ActivityApprovePlan   = "ApprovePlan"
	ActivityActions       = "Actions"
	ActivityRecordActions = "RecordActions"
	ActivityLimitPlan     = "LimitPlan"
	ActivityWatchPause    = "WatchPause"
	ActivityWindow        = "Window"
	ActivityGroupLags     = "GroupLags"

	ActivityCheckDecommission = "CheckDecommission"
	ActivityBeginDrain        = "BeginDrain"
	ActivityCancelDrain       = "CancelDrain"
	ActivityRemoveBroker      = "RemoveBroker"

	ActivityWatchFleet   = "WatchFleet"
	ActivityMarkBalanced = "MarkBalanced"

	QueryStatus    = "Status"
	SignalProgress = "progress"
	UpdateTune     = "tune"
	SignalAdjust   = "adjust"
	SignalBlocked  = "blocked" // to a decommission, from the rebalance that empties its broker
	SignalWaits    = "waits"   // to a rebalance, from a move that waits for a place in the fleet, or has found one

	// The updates of a rebalance.
	UpdateApprove = "approve"
	UpdatePause   = "pause"
	UpdateResume  = "resume"
	UpdateSkip    = "skip"
	UpdateLimits  = "limits"

	// Each is an update and a signal, with a Decision as its input.
	DecisionPromote = "promote"
	DecisionAbandon = "abandon"
)

// Search attributes, registered by the worker at its start.
const (
	AttributeTopic     = "MoveTopic"     // Keyword
	AttributePartition = "MovePartition" // Int
	AttributeSource    = "MoveSource"    // Keyword
	AttributeTarget    = "MoveTarget"    // Keyword
	AttributePhase     = "MovePhase"     // Keyword
	AttributeBlocked   = "MoveBlocked"   // Keyword, a stable code; "none" when nothing blocks
)

// Phases of a move, in order. The last three are ends.
const (
	PhaseClaim      = "claim"
	PhaseEnsure     = "ensure"
	PhaseCopy       = "copy"
	PhaseCutover    = "cutover"   // freeze, drain, offsets, install
	PhaseCommit     = "commit"    // the point of no return
	PhaseConfirm    = "confirm"   // the destination opens, the source redirects
	PhaseTwoMoves   = "two moves" // of a swap only: too little room for both at once, so one goes after the other
	PhaseRollback   = "rolling back"
	PhaseDone       = "done"
	PhaseCancelled  = "cancelled"
	PhaseRolledBack = "rolled back"
)

// Error types of failed activities. Everything that is not here is retried.
const (
	// ErrRefused: the request can not be carried out as it is; the message says why. Not retried, the move ends.
	ErrRefused = "Refused"
	// ErrInvalidInput: the workflow's input is not what it takes.
	ErrInvalidInput = "InvalidInput"
	// ErrMoveLost: the claim was ended by someone else (the freeze's lease, an operator); a new claim starts over.
	ErrMoveLost = "MoveLost"
	// ErrFreezeTooLong: the cutover would freeze for longer than allowed; the copy goes on.
	ErrFreezeTooLong = "FreezeTooLong"
	// ErrSourceLost: the source is gone, as its heartbeat counter and its agent's silence say; Details[0] is the counter.
	ErrSourceLost = "SourceLost"
	// ErrAbandoned: a person gave the move up.
	ErrAbandoned = "Abandoned"
)

// PartitionWorkflowID is the workflow id that the command line and parents use for everything that changes one partition.
// Any other id works too: the claim row is the lock.
func PartitionWorkflowID(topic string, partition int32) string {
	return "partition:" + topic + ":" + itoa(partition)
}

// SwapWorkflowID is the workflow id that the command line and parents use for a swap of two partitions, in whichever order
// they are named.
func SwapWorkflowID(a, b SwapPartition) string {
	if a.Topic > b.Topic || (a.Topic == b.Topic && a.number() > b.number()) {
		a, b = b, a
	}
	return "swap:" + a.Topic + ":" + itoa(a.number()) + ":" + b.Topic + ":" + itoa(b.number())
}

// IsSwapOf reports whether a workflow id is that of a swap with a partition.
func IsSwapOf(workflowID, topic string, partition int32) bool {
	sides, isSwap := strings.CutPrefix(workflowID, "swap:")
	own := topic + ":" + itoa(partition)
	return isSwap && (strings.HasPrefix(sides, own+":") || strings.HasSuffix(sides, ":"+own))
}
