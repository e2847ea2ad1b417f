package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"portage/internal/units"
)

// MoveInput asks for one partition to be moved. Only topic, partition and to are needed.
type MoveInput struct {
	Topic     string `json:"topic"`
	Partition *int32 `json:"partition"`
	To        string `json:"to"`
	// By and Reason are recorded with the move.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Limit paces the copy, in bytes a second: "64MiB". Empty: no limit of its own.
	Limit ByteSize `json:"limit,omitempty"`
	// Lag is how close to the tail the copy must come before the cutover; "4MiB" by default.
	Lag ByteSize `json:"lag,omitempty"`
	// MaxPasses bounds the passes of the copy; 20 by default.
	MaxPasses int `json:"maxPasses,omitempty"`
	// Force accepts an expected freeze above the limit of 30 s.
	Force bool `json:"force,omitempty"`
	// OnSourceLoss is what happens when the source is gone: LossAsk (also when empty), LossAuto or LossNever.
	OnSourceLoss string `json:"onSourceLoss,omitempty"`
	// PromoteAfter is how long the source must be silent before it is taken for gone; DefaultPromoteAfter when 0.
	PromoteAfter Duration `json:"promoteAfter,omitempty"`
	// Expect is what the partition's row must be for the move to begin; a rebalance gives what its plan was made of.
	Expect *Expect `json:"expect,omitempty"`
	// Plan and PlanSeq name the action of a plan that this move carries out.
	Plan    string `json:"plan,omitempty"`
	PlanSeq int    `json:"planSeq,omitempty"`
	// Earlier is what the workflow's earlier runs left: a move whose history has become long goes on in a new run. Nobody else
	// sets it.
	Earlier *EarlierRuns `json:"earlier,omitempty"`
}

// Expect is what a move expects of its partition's row; what is absent is not compared.
type Expect struct {
	TopicID string `json:"topicId,omitempty"`
	From    string `json:"from,omitempty"`
	Version int64  `json:"version,omitempty"`
}

// EarlierRuns is what people go on seeing of a move that goes on in a new run.
type EarlierRuns struct {
	Attempts    int    `json:"attempts"` // claims so far
	From        string `json:"from,omitempty"`
	LastFailure string `json:"lastFailure,omitempty"`
	Held        *Pause `json:"held,omitempty"` // it is held still
}

// Policy is OnSourceLoss with its default.
func (in MoveInput) Policy() string {
	if in.OnSourceLoss == "" {
		return LossAsk
	}
	return in.OnSourceLoss
}

// SilentFor is PromoteAfter with its default.
func (in MoveInput) SilentFor() time.Duration {
	if in.PromoteAfter == 0 {
		return DefaultPromoteAfter
	}
	return time.Duration(in.PromoteAfter)
}

// ParseMoveInput reads an input strictly: an unknown key is an error, never a default, and every fault is named at once.
func ParseMoveInput(raw []byte) (MoveInput, error) {
	var in MoveInput
	if err := decodeStrictly(raw, &in, "move", `{"topic":"orders","partition":3,"to":"b2"}`); err != nil {
		return in, err
	}
	faults := partitionFaults(in.Topic, in.Partition, "")
	if in.To == "" {
		faults = append(faults, `"to" is missing: name the destination broker`)
	}
	if in.MaxPasses < 0 || in.MaxPasses > 1000 {
		faults = append(faults, `"maxPasses" is not within 0 to 1000`)
	}
	if policy := in.Policy(); policy != LossAsk && policy != LossAuto && policy != LossNever {
		faults = append(faults, fmt.Sprintf(`"onSourceLoss" is %q; it is "ask", "auto" or "never"`, policy))
	}
	if len(faults) > 0 {
		return in, fmt.Errorf("the move can not start: %s", strings.Join(faults, "; "))
	}
	return in, nil
}

// decodeStrictly reads one JSON object into an input; what is it, as people call it.
func decodeStrictly(raw []byte, in any, what, example string) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(in); err != nil {
		return fmt.Errorf("the input is not a %s: %v; give %s", what, err, example)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return fmt.Errorf("the input has something behind the %s; give one JSON object", what)
	}
	return nil
}

// partitionFaults names what is wrong with a topic and a partition; the keys stand under prefix.
func partitionFaults(topic string, partition *int32, prefix string) (faults []string) {
	if topic == "" {
		faults = append(faults, fmt.Sprintf("%q is missing", prefix+"topic"))
	}
	switch {
	case partition == nil:
		faults = append(faults, fmt.Sprintf("%q is missing", prefix+"partition"))
	case *partition < 0:
		faults = append(faults, fmt.Sprintf("%q is %d; partitions start at 0", prefix+"partition", *partition))
	}
	return faults
}

// ByteSize is a number of bytes that reads "64MiB".
type ByteSize = units.ByteSize

// ParseByteSize reads a size; negative sizes are errors.
func ParseByteSize(text string) (ByteSize, error) { return units.ParseByteSize(text) }

// Claim is a move's hold on its partition, as the claim left it.
type Claim struct {
	MoveID          string    `json:"moveId"`
	TopicID         uuid.UUID `json:"topicId"`
	Topic           string    `json:"topic"`
	Partition       int32     `json:"partition"`
	From            string    `json:"from"`
	To              string    `json:"to"`
	Epoch           int32     `json:"epoch"`
	Version         int64     `json:"version"`
	ControllerEpoch int64     `json:"controllerEpoch"`
	ControllerID    string    `json:"controllerId"`
}

// ClaimArgs is the input of the Claim activity.
type ClaimArgs struct {
	MoveID string `json:"moveId"`
	// Attempt counts the claims of one workflow from 1: only the first refuses a destination that does not answer, a later
	// one waits for it.
	Attempt int       `json:"attempt"`
	Input   MoveInput `json:"input"`
}

// StepArgs is the input of every later activity of a move. Round rises each time the workflow repeats a phase under one
// claim, so that tokens keep rising (R16).
type StepArgs struct {
	Claim   Claim     `json:"claim"`
	Attempt int       `json:"attempt"` // of the claim, from 1
	Input   MoveInput `json:"input"`
	Round   int32     `json:"round"`
	// PartOfSwap: a source that is gone is waited for, for a side of a swap is never promoted (R32).
	PartOfSwap bool `json:"partOfSwap,omitempty"`
}

// CopyResult is what the copy reached.
type CopyResult struct {
	BytesTotal     int64         `json:"bytesTotal"`
	BytesCopied    int64         `json:"bytesCopied"`
	Passes         int           `json:"passes"`
	Converged      bool          `json:"converged"`
	ExpectedFreeze time.Duration `json:"expectedFreezeNs"`
	Adopted        bool          `json:"adopted,omitempty"`
}

// CutoverArgs is the input of the Cutover activity.
type CutoverArgs struct {
	StepArgs
	ExpectedFreeze time.Duration `json:"expectedFreezeNs"`
}

// Evidence is what a cutover proves: the source's freeze and the destination's installed copy (R7).
type Evidence struct {
	Version          int64     `json:"version"`
	FrozenEnd        int64     `json:"frozenEnd"`
	InstalledEnd     int64     `json:"installedEnd"`
	InstalledVersion int64     `json:"installedVersion"`
	Storage          uuid.UUID `json:"storage"`
	TailBytes        int64     `json:"tailBytes"`
	Groups           int       `json:"groups"`
	Producers        int       `json:"producers"`
}

// CommitArgs is the input of the Commit activity.
type CommitArgs struct {
	StepArgs
	Evidence Evidence `json:"evidence"`
}

// FinishArgs is the input of the Finish activity.
type FinishArgs struct {
	StepArgs
	Copy CopyResult `json:"copy"`
}

// FinishResult is what the agents measured.
type FinishResult struct {
	FrozenMS float64 `json:"frozenMs"` // from the first parked request until writes were taken again; 0 when none was parked
	TotalMS  float64 `json:"totalMs"`  // from the freeze itself
	Parked   int     `json:"parked"`
	// WentOn: the destination was lost before it was seen to have the partition open, and a later decision gave it to Owner, ""
	// when its topic was deleted.
	WentOn string `json:"wentOn,omitempty"`
	Owner  string `json:"owner,omitempty"`
}

// AbortArgs is the input of the Abort activity.
type AbortArgs struct {
	StepArgs
	Reason      string `json:"reason"`
	KeepStaging bool   `json:"keepStaging"` // a retry follows and takes the staging over by digest
}

// AbortResult says who won: an abort that comes too late finds the move committed.
type AbortResult struct {
	Committed bool `json:"committed"`
}

// Tune is the update that changes a running move. What is absent stays as it is.
type Tune struct {
	Limit *ByteSize `json:"limit,omitempty"` // the pace of the copy; 0 lifts it
	Force *bool     `json:"force,omitempty"` // accept an expected freeze above the limit
	By    string    `json:"by,omitempty"`
	// Reason is why; it stands in the workflow's history.
	Reason string `json:"reason,omitempty"`
}

// PaceArgs is the input of the Pace activity.
type PaceArgs struct {
	Claim Claim    `json:"claim"`
	Limit ByteSize `json:"limit"`
}

// Progress is the signal activities send when what people see should change: blocked, unblocked, or another tenth copied.
type Progress struct {
	MoveID        string  `json:"moveId,omitempty"` // whose copy it is, in a workflow that has several; empty: the workflow's as a whole
	BytesDone     int64   `json:"bytesDone"`
	BytesTotal    int64   `json:"bytesTotal"`
	BytesPerSec   float64 `json:"bytesPerSec"`
	Blocked       string  `json:"blocked,omitempty"`
	BlockedReason string  `json:"blockedReason,omitempty"`
}

// Status is the answer of the Status query and the text behind the workflow's current details.
type Status struct {
	Topic         string     `json:"topic"`
	Partition     int32      `json:"partition"`
	From          string     `json:"from,omitempty"`
	To            string     `json:"to"`
	MoveID        string     `json:"moveId,omitempty"`
	Phase         string     `json:"phase"`
	Since         time.Time  `json:"since"` // when the phase began
	Attempt       int        `json:"attempt"`
	BytesDone     int64      `json:"bytesDone"`
	BytesTotal    int64      `json:"bytesTotal"`
	BytesPerSec   float64    `json:"bytesPerSec,omitempty"`
	Blocked       string     `json:"blocked,omitempty"` // a stable code
	BlockedReason string     `json:"blockedReason,omitempty"`
	BlockedSince  *time.Time `json:"blockedSince,omitempty"`
	Unblock       string     `json:"unblock,omitempty"` // what would unblock it, with the command
	IsOn          string     `json:"isOn,omitempty"`    // the owner, as far as the move knows
	ShouldBeOn    string     `json:"shouldBeOn"`        // where the partition is to be once the move has ended
	By            string     `json:"by,omitempty"`      // who asked
	Reason        string     `json:"reason,omitempty"`  // and why
	Committed     bool       `json:"committed"`
	LastFailure   string     `json:"lastFailure,omitempty"`
	TooLate       string     `json:"tooLate,omitempty"` // the answer to a cancel after the point of no return
	WentOn        string     `json:"wentOn,omitempty"`  // where the partition went before its destination was seen to open it
	Converged     *bool      `json:"converged,omitempty"`
	FrozenMS      float64    `json:"frozenMs,omitempty"`
	// Promotion is what is known while the source is gone, and what was known when its copy was promoted.
	Promotion *Promotion `json:"promotion,omitempty"`
	// Deciding: the update promote is taken now.
	Deciding bool `json:"deciding,omitempty"`
	// Sides are both partitions of a swap, in the order they were given; a move has none. Topic, From and To are then the
	// first side's, bytes and rate those of both together.
	Sides []SideStatus `json:"sides,omitempty"`
}

// ETA is the time the rest of the copy takes at the present rate; false when that is not known.
func (s Status) ETA() (time.Duration, bool) {
	if s.BytesPerSec <= 0 || s.BytesTotal <= s.BytesDone {
		return 0, false
	}
	return time.Duration(float64(s.BytesTotal-s.BytesDone) / s.BytesPerSec * float64(time.Second)), true
}

// MoveResult is how a move that was carried out ended.
type MoveResult struct {
	MoveID    string  `json:"moveId"`
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	From      string  `json:"from"`
	To        string  `json:"to"`
	Epoch     int32   `json:"epoch"`
	End       int64   `json:"end"` // the partition's end at the flip
	Bytes     int64   `json:"bytes"`
	Converged bool    `json:"converged"`
	Adopted   bool    `json:"adopted,omitempty"`
	FrozenMS  float64 `json:"frozenMs"`
	TotalMS   float64 `json:"totalMs"`
	Parked    int     `json:"parked"`
	Attempts  int     `json:"attempts"`
	TooLate   string  `json:"tooLate,omitempty"`
	WentOn    string  `json:"wentOn,omitempty"` // where the partition went before its destination was seen to open it
	// Promoted: the source was gone and its copy became the partition; Promotion is what was known then.
	Promoted  bool       `json:"promoted,omitempty"`
	Promotion *Promotion `json:"promotion,omitempty"`
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }
