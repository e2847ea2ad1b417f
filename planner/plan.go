package planner

import (
	"time"

	"portage/internal/units"
)

// Kinds of actions.
const (
	ActionMove = "MOVE" // one partition goes to another broker
	ActionSwap = "SWAP" // two partitions change places
)

// DrainGoal is the goal of an action that empties a draining broker.
const DrainGoal = "DRAIN"

// Plan is what should move, and what that leads to. The same snapshot and settings give the same plan.
type Plan struct {
	// Hash is of what the actions do: kinds, partitions, from, to and the row versions they were planned against. What runs
	// is what was approved when the hashes are equal.
	Hash    string    `json:"hash"`
	FleetID string    `json:"fleetId,omitempty"`
	TakenAt time.Time `json:"takenAt"` // of the snapshot
	// Held says why nothing is planned although there may be something to do.
	Held *Objection `json:"held,omitempty"`
	// Actions in the order in which they were decided. No partition is in two of them.
	Actions []Action `json:"actions"`
	// Capped: there is more to do than maxActions allowed.
	Capped bool `json:"capped,omitempty"`
	// BytesMoved is what the actions copy. No set of moves with the same effect on each broker's excess could copy less
	// than BytesFloor, even if partitions could be divided.
	BytesMoved int64 `json:"bytesMoved"`
	BytesFloor int64 `json:"bytesFloor"`
	// ETA is how long the actions take at least under the limits of the settings; absent when the limits start none.
	ETA     *units.Duration `json:"eta,omitempty"`
	Goals   []GoalReport    `json:"goals"`
	Brokers []BrokerReport  `json:"brokers"`
	// Blocked are partitions that should leave a draining broker and can not now.
	Blocked []Blocked `json:"blocked,omitempty"`
}

// Action is one MOVE or SWAP.
type Action struct {
	Kind string `json:"kind"`
	Legs []Leg  `json:"legs"` // one, or the two of a swap
	// Goal is the name of the goal it serves, or DRAIN.
	Goal   string `json:"goal"`
	Reason string `json:"reason"`
	// Effect is on the goal it serves, when it was decided.
	Effect Effect `json:"effect"`
}

// Leg is one partition's way.
type Leg struct {
	Topic     string `json:"topic"`
	TopicID   string `json:"topicId,omitempty"`
	Partition int32  `json:"partition"`
	From      string `json:"from"`
	To        string `json:"to"`
	// Version is that of the row the action was planned against: a row that has another has drifted.
	Version int64 `json:"version"`
	// Bytes must be copied: its size, less a former copy at the destination.
	Bytes int64 `json:"bytes"`

	from, to int32 // the brokers' indexes in the snapshot
}

// Effect is the goal's load of both brokers around an action, with where their bands end.
type Effect struct {
	FromBefore int64 `json:"fromBefore"`
	FromAfter  int64 `json:"fromAfter"`
	FromUpper  int64 `json:"fromUpper"`
	ToBefore   int64 `json:"toBefore"`
	ToAfter    int64 `json:"toAfter"`
	ToUpper    int64 `json:"toUpper"`
}

// Figures are a broker's loads by goal: those of the partitions it owns, and of those on their way to it.
type Figures struct {
	In         int64 `json:"in"`   // bytes a second
	Out        int64 `json:"out"`  // bytes a second
	Disk       int64 `json:"disk"` // bytes
	Partitions int64 `json:"partitions"`
}

// Of is the figure of one goal.
func (f Figures) Of(g Goal) int64 { return [numGoals]int64{f.In, f.Out, f.Disk, f.Partitions}[g] }

// BrokerReport is one broker before and after a plan.
type BrokerReport struct {
	ID          string      `json:"id"`
	State       string      `json:"state"` // in service, draining or dead
	Before      Figures     `json:"before"`
	After       Figures     `json:"after"`
	Upper       Figures     `json:"upper"` // where its bands end; 0 where a goal is not in effect
	Score       BrokerScore `json:"score"`
	ScoreAfter  float64     `json:"scoreAfter"`
	Inbound     int         `json:"inbound"`
	Outbound    int         `json:"outbound"`
	BytesIn     int64       `json:"bytesIn"`
	BytesOut    int64       `json:"bytesOut"`
	RoomBytes   int64       `json:"roomBytes"`             // after the plan and the moves in flight; former copies still there
	RoomUnknown bool        `json:"roomUnknown,omitempty"` // the size of its disk is not known, so room is not looked at
}

// GoalReport is one goal before and after a plan.
type GoalReport struct {
	Goal      Goal    `json:"goal"`
	InEffect  bool    `json:"inEffect"`
	WhyNot    string  `json:"whyNot,omitempty"`
	Mean      float64 `json:"mean"` // load per broker in service
	Deviation float64 `json:"deviation"`
	// Excess is the sum over all brokers that are above their bands by more than the margin of what is above them; ExcessFloor what would be left if partitions could be
	// divided: the excess of those that may not move.
	ExcessBefore int64 `json:"excessBefore"`
	ExcessAfter  int64 `json:"excessAfter"`
	ExcessFloor  int64 `json:"excessFloor"`
	// ExcessSingle is what is left above the bands wherever they are by partitions that are larger than any band.
	ExcessSingle int64 `json:"excessSingle"`
	// Over is how many brokers are above their bands by more than the margin.
	OverBefore int `json:"overBefore"`
	OverAfter  int `json:"overAfter"`
	// Peak is the highest load in terms of its broker's share; 1 is the mean.
	PeakBefore float64 `json:"peakBefore"`
	PeakAfter  float64 `json:"peakAfter"`
	// Stddev is the population's. Nothing is decided on it (M41).
	StddevBefore float64 `json:"stddevBefore"`
	StddevAfter  float64 `json:"stddevAfter"`
	// BytesFloor is what must be copied at least for this goal alone.
	BytesFloor int64  `json:"bytesFloor"`
	Left       []Left `json:"left,omitempty"`
}

// Left is a broker that stays above its band.
type Left struct {
	Broker string `json:"broker"`
	Load   int64  `json:"load"`
	Upper  int64  `json:"upper"`
	Reason string `json:"reason"`
}

// Blocked is a partition that should move and can not.
type Blocked struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Owner     string `json:"owner"`
	Objection
}

// Moves is how many partitions the plan moves.
func (p *Plan) Moves() int {
	n := 0
	for i := range p.Actions {
		n += len(p.Actions[i].Legs)
	}
	return n
}
