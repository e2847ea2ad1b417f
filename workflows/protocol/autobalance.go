package protocol

import "time"

// AutobalanceInput starts the Autobalance; {} works.
type AutobalanceInput struct {
	// Status is what earlier runs of the workflow did, carried along; it is not for people.
	Status AutobalanceStatus `json:"status,omitzero"`
}

// AutobalanceStatus is the answer of the Autobalance's Status query and the text behind its current details.
type AutobalanceStatus struct {
	Mode  string   `json:"mode,omitempty"` // off, count or goals; empty before the first look
	Every Duration `json:"every"`          // between two passes for no other reason; 0: none
	// Running is the pass under way, Last the one before it.
	Running *AutobalancePass `json:"running,omitempty"`
	Last    *AutobalancePass `json:"last,omitempty"`
	Passes  int64            `json:"passes"`
	// Failures in a row; no pass begins before NotBefore after one.
	Failures  int        `json:"failures,omitempty"`
	NotBefore *time.Time `json:"notBefore,omitempty"`
	// Due is when a pass begins though no broker gives reason for one, and DueWhy why.
	Due    *time.Time `json:"due,omitempty"`
	DueWhy string     `json:"dueWhy,omitempty"`
	// Blocked is the stable code of what keeps a pass that there is reason for from beginning.
	Blocked       string `json:"blocked,omitempty"`
	BlockedReason string `json:"blockedReason,omitempty"`
	Unblock       string `json:"unblock,omitempty"`
	// Declined are the newest reasons for a pass that were left alone because the mode is off, newest last.
	Declined []string `json:"declined,omitempty"`
}

// AutobalancePass is one pass.
type AutobalancePass struct {
	Why       string          `json:"why"`
	Mode      string          `json:"mode"`
	Began     time.Time       `json:"began"`
	Ended     *time.Time      `json:"ended,omitempty"`
	Rebalance string          `json:"rebalance,omitempty"` // its id, as in `portage rebalance --undo ID`
	Outcome   string          `json:"outcome,omitempty"`
	Counts    RebalanceCounts `json:"counts"`
}

// WatchFleetArgs is the input of the WatchFleet activity: what the workflow knows.
type WatchFleetArgs struct {
	Mode      string     `json:"mode,omitempty"`
	Every     Duration   `json:"every"`
	Blocked   string     `json:"blocked,omitempty"`
	Due       *time.Time `json:"due,omitempty"`
	NotBefore *time.Time `json:"notBefore,omitempty"`
}

// FleetNews is what is not as the workflow knows it: other settings, another hold, or else a reason for a pass.
type FleetNews struct {
	Mode          string        `json:"mode"`
	Every         Duration      `json:"every"`
	Blocked       string        `json:"blocked,omitempty"`
	BlockedReason string        `json:"blockedReason,omitempty"`
	Changes       []FleetChange `json:"changes,omitempty"` // brokers that give reason for a pass
	Due           bool          `json:"due,omitempty"`     // the time gives reason for one
}

// FleetChange is a broker that gives reason for a pass.
type FleetChange struct {
	Broker string `json:"broker"`
	State  string `json:"state"` // of its row, as the pass is to mark it
	What   string `json:"what"`
}

// Modes of the autobalance that the workflow tells apart.
const (
	AutobalanceOff   = "off"
	AutobalanceCount = "count"
)

// ByAutobalance is who asks for the rebalances that no person asked for.
const ByAutobalance = "autobalance"

// AutobalanceWorkflowID is the one Autobalance of a fleet.
func AutobalanceWorkflowID(taskQueue string) string { return "autobalance:" + taskQueue }
