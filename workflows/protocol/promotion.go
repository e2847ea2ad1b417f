package protocol

import (
	"time"

	"portage/internal/units"
)

// What a move does when its source is gone (R2): the values of "onSourceLoss".
const (
	LossAsk   = "ask"   // waits for a person's promote or abandon, or for the source; the default
	LossAuto  = "auto"  // promotes the copy by itself once the source must have stopped acknowledging writes
	LossNever = "never" // waits for the source
)

// DefaultPromoteAfter is how long a source must be silent before it is taken for gone. With LossAuto it must be at least
// twice the write fence of the source's agent (60 s by default).
const DefaultPromoteAfter = 2 * time.Minute

// ByPolicy is who decides when "onSourceLoss":"auto" does; every other decision is a person's.
const ByPolicy = "onSourceLoss=auto"

// PromotionWarning is shown wherever a person may promote a copy.
const PromotionWarning = "the source does not answer here, which does not prove that it answers nobody: it may still be acknowledging records to clients that reach it, " +
	"and whatever it confirmed after the copy's last look at it would be lost"

// Duration reads "2m" or a number of nanoseconds.
type Duration = units.Duration

// Promotion is what is known when a source is gone: what the destination's copy has, and what speaks against promoting it.
type Promotion struct {
	Eligible bool   `json:"eligible"`
	Missing  string `json:"missing,omitempty"` // why it is not eligible
	// StagedEnd is where the copy ends, HighWatermark the highest end the source was ever known to have.
	StagedEnd     int64     `json:"stagedEnd"`
	HighWatermark int64     `json:"highWatermark"`
	SnapshotAt    time.Time `json:"snapshotAt"` // the copy's last look at the source, by the destination's clock
	Groups        int       `json:"groups"`
	Producers     int       `json:"producers"`
	Heartbeat     int64     `json:"heartbeat"` // the source's counter, seen unchanged
	Warning       string    `json:"warning"`
}

// Same reports whether a person would read the same in both.
func (p Promotion) Same(q *Promotion) bool {
	return q != nil && p.Eligible == q.Eligible && p.Missing == q.Missing && p.StagedEnd == q.StagedEnd && p.HighWatermark == q.HighWatermark && p.SnapshotAt.Equal(q.SnapshotAt)
}

// WatchArgs is the input of the WatchSource activity.
type WatchArgs struct {
	StepArgs
	Heartbeat int64      `json:"heartbeat"`
	Known     *Promotion `json:"known,omitempty"` // what the workflow shows already
}

// SourceLoss is why a watch ended: the source is back, or what is known has changed.
type SourceLoss struct {
	Back      bool      `json:"back"`
	Promotion Promotion `json:"promotion"`
}

// PromoteArgs is the input of the Promote activity.
type PromoteArgs struct {
	StepArgs
	Heartbeat int64  `json:"heartbeat"`
	By        string `json:"by"`
	Reason    string `json:"reason"`
	// Settle: it is given up. Nothing more is promoted; whether it was done already is found out.
	Settle bool `json:"settle,omitempty"`
}

// PromoteResult is how a promotion ended: done at Epoch, or Refused with what is missing.
type PromoteResult struct {
	Refused string `json:"refused,omitempty"`
	// NeedsPerson: the guarded write refused it, and would again; what only lacked for a moment is looked at anew.
	NeedsPerson bool      `json:"needsPerson,omitempty"`
	Epoch       int32     `json:"epoch"`
	End         int64     `json:"end"`
	Promotion   Promotion `json:"promotion"`
}

// PromotionEvidence is what is kept in the metastore of a promotion.
type PromotionEvidence struct {
	Promotion
	Policy       string   `json:"policy"`
	PromoteAfter Duration `json:"promoteAfter"`
	From         string   `json:"from"`
	By           string   `json:"by"`
	Reason       string   `json:"reason,omitempty"`
}

// Decision is the input of the updates and signals promote and abandon.
type Decision struct {
	By     string `json:"by"`
	Reason string `json:"reason"`
}
