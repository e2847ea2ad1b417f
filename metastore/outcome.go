package metastore

import (
	"errors"
	"fmt"
)

// Codes a guarded write or registration is refused with. They are stable: workflows, the CLI and tests decide on them.
const (
	CodeUnknownTopic     = "unknown_topic"
	CodeUnknownPartition = "unknown_partition"
	CodeUnknownBroker    = "unknown_broker"
	CodeUnknownMove      = "unknown_move"
	CodeInternalTopic    = "internal_topic"
	CodeAlreadyOwner     = "already_owner"
	CodeAlreadyMoving    = "already_moving"
	CodeBrokerDraining   = "broker_draining"
	CodeBrokerRemoved    = "broker_removed"
	CodeMoveEnded        = "move_ended"
	CodeMoveCommitted    = "move_committed"
	CodeRowMoved         = "row_moved"
	CodeNotOwner         = "not_owner"
	CodeStorageChanged   = "storage_changed"
	CodeEndsDiffer       = "ends_differ"
	CodeRecoveryPending  = "recovery_pending"
	CodeStaleController  = "stale_controller_epoch"
	CodeTopicExists      = "topic_exists"
	CodeNoBroker         = "no_broker"
	CodeInvalidTopic     = "invalid_topic"
	CodeNodeIDTaken      = "node_id_taken"
	CodeSuperseded       = "superseded"
	CodeOtherFleet       = "other_fleet"
	CodeInvalidSetting   = "invalid_setting"
	CodeBrokerAlive      = "broker_alive"
	CodeBrokerInUse      = "broker_in_use"
	CodeNotDraining      = "broker_not_draining"
	CodeTooFewBrokers    = "too_few_brokers"
	CodeTooLittleRoom    = "too_little_room"
	CodeQuarantined      = "quarantined_copies"
	CodeRowDrifted       = "row_drifted"
	// CodeFleetBusy: the move of a plan waits for a place in the fleet. CodePlanPaused, CodePlanOutside: for its rebalance to go on.
	// CodePlanNone: for a limit above 0. CodePlanOver: it does not begin any more.
	CodeFleetBusy   = "fleet_busy"
	CodePlanPaused  = "paused"
	CodePlanOutside = "outside_window"
	CodePlanNone    = "limits_start_none"
	CodePlanOver    = "deadline_passed"
	CodeUnknownPlan = "unknown_plan"
	// CodeMetastoreRestored: the row was written on another Postgres timeline or server; reconcile first (R1).
	CodeMetastoreRestored = "metastore_restored"
	// CodeMetastoreOlder: the row is older than the one the caller holds; reconcile first (R1).
	CodeMetastoreOlder = "metastore_older"
	CodeNoFence        = "no_fence"
	CodeSourceAlive    = "source_alive"
	CodeCopyBehind     = "copy_behind"
	// CodeSameOwner: both partitions of a swap are on one broker.
	CodeSameOwner = "same_owner"
	// CodePartOfSwap: the move is one side of a swap, which is committed as a whole or not at all (R32).
	CodePartOfSwap = "part_of_swap"
)

// Refused is the outcome of a write that was not done: the row is not what the caller believes. Row is the row as it
// stands, nil when there is none; whoever receives it acts on it (R14).
type Refused struct {
	Write  string
	Code   string
	Reason string // a sentence for people: what is the case and what they can do
	Row    *Assignment
	Move   *Move // the move in the way, for already_moving and move_committed
}

func (r *Refused) Error() string { return r.Write + " refused: " + r.Reason }

// Unknown is the outcome of a write whose reply never came. It may have happened.
type Unknown struct {
	Write string
	Cause error
}

func (u *Unknown) Error() string {
	return fmt.Sprintf("%s: outcome unknown, repeat it: %v", u.Write, u.Cause)
}

func (u *Unknown) Unwrap() error { return u.Cause }

// RefusedWith reports whether err is a refusal with one of the given codes; with no code, any refusal.
func RefusedWith(err error, codes ...string) (*Refused, bool) {
	var refused *Refused
	if !errors.As(err, &refused) {
		return nil, false
	}
	if len(codes) == 0 {
		return refused, true
	}
	for _, code := range codes {
		if refused.Code == code {
			return refused, true
		}
	}
	return nil, false
}

// IsUnknown reports whether the outcome of a write is unknown.
func IsUnknown(err error) bool {
	var unknown *Unknown
	return errors.As(err, &unknown)
}
