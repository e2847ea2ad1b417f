package protocol

import "time"

// SupervisorInput starts the Supervisor; {} works.
type SupervisorInput struct {
	// Every is the pause between two passes; DefaultSuperviseEvery when 0.
	Every Duration `json:"every,omitempty"`
	// What earlier runs of the workflow did, carried along.
	Passes   int64    `json:"passes,omitempty"`
	Released int64    `json:"released,omitempty"`
	Last     []string `json:"last,omitempty"` // the newest releases, newest last
}

// DefaultSuperviseEvery is how soon an orphaned claim is taken back.
const DefaultSuperviseEvery = 10 * time.Second

// SupervisorPass is what one pass did.
type SupervisorPass struct {
	Running    int      `json:"running"`
	Released   []string `json:"released,omitempty"`
	Unknown    int      `json:"unknown,omitempty"`    // runs that Temporal could not be asked about
	Superseded string   `json:"superseded,omitempty"` // the deployment that took over: nothing was touched
}

// SupervisorWorkflowID is the one Supervisor of a fleet.
func SupervisorWorkflowID(taskQueue string) string { return "supervisor:" + taskQueue }
