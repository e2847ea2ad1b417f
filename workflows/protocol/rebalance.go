package protocol

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"portage/planner"
)

// RebalanceInput asks for a fleet to be balanced; {} works.
type RebalanceInput struct {
	// Approve: nothing moves before the update approve names the plan's hash.
	Approve bool `json:"approve,omitempty"`
	// Hash carries out the newest plan of this hash, as it was seen and approved, instead of a new one.
	Hash string `json:"hash,omitempty"`
	// DryRun only plans: the result has the plan's id and hash.
	DryRun bool `json:"dryRun,omitempty"`
	// Undo moves back what the rebalance of this id has moved.
	Undo string `json:"undo,omitempty"`
	// Drain plans for nothing but emptying draining brokers.
	Drain bool `json:"drain,omitempty"`
	// DrainBroker empties, with Drain, this one alone.
	DrainBroker string `json:"drainBroker,omitempty"`
	// CountOnly plans by the number of partitions alone, exactly and with the fewest moves; draining brokers are emptied too.
	CountOnly bool `json:"countOnly,omitempty"`
	// Limits; what is absent is as the planner's settings say.
	Limits
	// Settings are the planner's that differ from the defaults; the first plan refuses what is none.
	Settings json.RawMessage `json:"settings,omitempty"`
	// Canary carries out a few moves first and looks at them before the rest.
	Canary *Canary `json:"canary,omitempty"`
	// Window is when moves may run; outside it they are held and none is started.
	Window *Window `json:"window,omitempty"`
	// Deadline: no move is started after it, and the status says early when it can not be met.
	Deadline *time.Time `json:"deadline,omitempty"`
	By       string     `json:"by,omitempty"`
	Reason   string     `json:"reason,omitempty"`

	// Carried is what earlier runs of the workflow did; it is not for people.
	Carried *RebalanceCarried `json:"carried,omitempty"`
}

// Limits bound a rebalance while it runs; what is absent stays as it is.
type Limits struct {
	MaxInFlight        *int      `json:"maxInFlight,omitempty"`        // moves in flight in the fleet below which another begins; 0: none
	TransfersPerBroker *int      `json:"transfersPerBroker,omitempty"` // copies a broker gives, and takes, at once
	MoveRate           *ByteSize `json:"moveRate,omitempty"`           // bytes a second of one move; 0: no limit
	BrokerRate         *ByteSize `json:"brokerRate,omitempty"`         // bytes a second of all copies of a broker in one direction; 0: no limit
}

// Empty reports whether nothing is named.
func (l Limits) Empty() bool {
	return l.MaxInFlight == nil && l.TransfersPerBroker == nil && l.MoveRate == nil && l.BrokerRate == nil
}

// Faults names what is wrong with the limits.
func (l Limits) Faults() (faults []string) {
	if l.MaxInFlight != nil && (*l.MaxInFlight < 0 || *l.MaxInFlight > MostInFlight) {
		faults = append(faults, fmt.Sprintf(`"maxInFlight" is not within 0 to %d`, MostInFlight))
	}
	if l.TransfersPerBroker != nil && *l.TransfersPerBroker < 0 {
		faults = append(faults, `"transfersPerBroker" is negative`)
	}
	return faults
}

// MostInFlight bounds the children of one rebalance that run at once.
const MostInFlight = 100

// Canary is the first part of a rebalance, and what must hold of it before the rest follows.
type Canary struct {
	Moves int      `json:"moves"` // at least 1
	Soak  Duration `json:"soak"`  // how long it is waited before the rest
	// LongestWait is how long a write may have waited for any of these moves; 5 s when 0.
	LongestWait Duration `json:"longestWait,omitempty"`
	// Lag is how many records further behind a group may be on any of the moved partitions, after the soak, than it was before
	// the moves; absent: not looked at.
	Lag *int64 `json:"lag,omitempty"`
}

// Window is a recurring time in which a rebalance moves. Both edges are what the clock on the wall of its zone shows.
type Window struct {
	Cron string   `json:"cron"`           // when it opens: five fields, "0 1 * * *"
	For  Duration `json:"for"`            // how long by that clock until it closes, 1m to 168h
	Zone string   `json:"zone,omitempty"` // "Europe/Berlin"; UTC when empty
}

// String is the window as people say it.
func (w Window) String() string {
	zone := w.Zone
	if zone == "" {
		zone = "UTC"
	}
	length := strings.TrimSuffix(time.Duration(w.For).String(), "0s") // "1h30m"
	if time.Duration(w.For)%time.Hour == 0 {
		length = strings.TrimSuffix(length, "0m")
	}
	return fmt.Sprintf("%s for %s, %s", w.Cron, length, zone)
}

// WindowArgs is the input of the Window activity.
type WindowArgs struct {
	Window Window    `json:"window"`
	Now    time.Time `json:"now"`
}

// WindowState is a window at a moment; the times carry the offset of its zone then.
type WindowState struct {
	Open  bool      `json:"open"`
	Until time.Time `json:"until"` // when it closes, or opens
	Then  time.Time `json:"then"`  // when it is as now again
}

// MostLagMoves bounds the moves of a canary that looks at lags: what groups lag stands in the workflow's history.
const MostLagMoves = 20

// LagArgs is the input of the GroupLags activity.
type LagArgs struct {
	Partitions []LagOf `json:"partitions"`
	// LiveWithin: only groups count that have committed within it, or have nothing left to read; 0: all.
	LiveWithin Duration `json:"liveWithin,omitempty"`
}

// LagOf names a partition whose groups' lags are asked for.
type LagOf struct {
	Topic     string `json:"topic"`
	TopicID   string `json:"topicId,omitempty"`
	Partition int32  `json:"partition"`
}

// String is the partition as people write it: "orders/3".
func (p LagOf) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.Partition) }

// PartitionLags are the lags of one partition's groups, by name. Gone: there is no such partition any more.
type PartitionLags struct {
	LagOf
	Gone   bool       `json:"gone,omitempty"`
	Groups []GroupLag `json:"groups,omitempty"`
	// More: there are groups beside them, which committed longer ago.
	More bool `json:"more,omitempty"`
}

// GroupLag is how many records a group is behind.
type GroupLag struct {
	Group string `json:"group"`
	Lag   int64  `json:"lag"`
}

// LongestWaitDefault is the longest wait of a write that a canary accepts.
const LongestWaitDefault = 5 * time.Second

// ParseRebalanceInput reads an input strictly, every fault named at once.
func ParseRebalanceInput(raw []byte) (RebalanceInput, error) {
	var in RebalanceInput
	if len(raw) == 0 || string(raw) == "null" {
		raw = []byte("{}")
	}
	if err := decodeStrictly(raw, &in, "rebalance", `{}, {"approve":true} or {"dryRun":true}`); err != nil {
		return in, err
	}
	faults := in.Limits.Faults()
	kinds := 0
	for _, given := range []bool{in.Hash != "", in.Undo != "", in.Drain, in.CountOnly} {
		if given {
			kinds++
		}
	}
	if kinds > 1 {
		faults = append(faults, `"hash", "undo", "drain" and "countOnly" exclude each other`)
	}
	if in.DrainBroker != "" && !in.Drain {
		faults = append(faults, `"drainBroker" says which broker "drain" empties`)
	}
	if in.Hash != "" && len(in.Hash) < 8 {
		faults = append(faults, `"hash" has fewer than 8 characters`)
	}
	if in.Canary != nil && (in.Canary.Moves < 1 || in.Canary.Soak < 0) {
		faults = append(faults, `"canary" needs "moves" of at least 1 and a "soak" that is not negative`)
	}
	if c := in.Canary; c != nil && c.Lag != nil && (*c.Lag < 0 || c.Moves > MostLagMoves) {
		faults = append(faults, fmt.Sprintf(`"canary" looks at a "lag" that is not negative, of at most %d "moves"`, MostLagMoves))
	}
	if w := in.Window; w != nil && (w.Cron == "" || w.For == 0) {
		faults = append(faults, `"window" needs "cron", when it opens, and "for", how long: {"cron":"0 1 * * *","for":"4h","zone":"Europe/Berlin"}`)
	}
	if len(faults) > 0 {
		return in, fmt.Errorf("the rebalance can not start: %s", strings.Join(faults, "; "))
	}
	return in, nil
}

// RebalanceCarried goes from run to run of one rebalance.
type RebalanceCarried struct {
	ID       string            `json:"id"` // the first run's id
	Began    time.Time         `json:"began"`
	Plan     *PlanSummary      `json:"plan,omitempty"` // the plan being carried out, when it was approved
	Next     int               `json:"next"`           // the cursor in it
	Counts   RebalanceCounts   `json:"counts"`
	Troubles []Trouble         `json:"troubles,omitempty"`
	Tried    map[string]string `json:"tried,omitempty"` // "orders/3>b2" → why that is not tried again
	Skipped  map[string]string `json:"skipped,omitempty"`
	LeftOut  map[string]bool   `json:"leftOut,omitempty"` // of the skipped, those that are counted
	Done     []int             `json:"done,omitempty"`    // actions behind the cursor that were started already
	Paused   *Pause            `json:"paused,omitempty"`
	Fleet    Pause             `json:"fleet"` // whether the whole fleet is paused
	Plans    int               `json:"plans"`
	Canary   bool              `json:"canary,omitempty"` // it is over
}

// RebalanceCounts say how the actions of all plans ended so far, in partitions: a swap counts for its two.
type RebalanceCounts struct {
	Moved     int   `json:"moved"`
	Failed    int   `json:"failed"`
	Held      int   `json:"held"`      // not as planned any more
	Skipped   int   `json:"skipped"`   // a person said so, or another moves it
	Cancelled int   `json:"cancelled"` // before their commit
	Bytes     int64 `json:"bytes"`     // copied
}

// Trouble is one action that moved nothing, with the reason.
type Trouble struct {
	Partition string `json:"partition"`
	With      string `json:"with,omitempty"` // the other partition of a swap, which goes the other way
	From      string `json:"from"`
	To        string `json:"to"`
	State     string `json:"state"` // failed, held, skipped or cancelled
	Code      string `json:"code,omitempty"`
	Reason    string `json:"reason"`
}

// String is the trouble as one line.
func (t Trouble) String() string {
	what := fmt.Sprintf("%s %s → %s", t.Partition, t.From, t.To)
	if t.With != "" {
		what += " with " + t.With
	}
	return fmt.Sprintf("%s %s: %s", what, t.State, t.Reason)
}

// States of an action that has ended.
const (
	ActionMoved     = "moved"
	ActionFailed    = "failed"
	ActionHeld      = "held"
	ActionSkipped   = "skipped"
	ActionCancelled = "cancelled"
)

// PlanArgs is the input of the Plan activity.
type PlanArgs struct {
	ID        string          `json:"id"` // the plan is kept under
	Rebalance string          `json:"rebalance"`
	Hash      string          `json:"hash,omitempty"` // of the plan to take instead
	Undo      string          `json:"undo,omitempty"`
	Drain     bool            `json:"drain,omitempty"`
	Of        string          `json:"of,omitempty"`      // with Drain, the one broker to empty
	Limits    Limits          `json:"limits,omitzero"`   // what differs from those of the settings, for the estimate
	Limited   bool            `json:"limited,omitempty"` // who asks changes the limit of moves in flight where claims look at it
	Swaps     bool            `json:"swaps,omitempty"`   // who asks carries out swaps, so they may be planned where the settings allow them
	CountOnly bool            `json:"countOnly,omitempty"`
	Settings  json.RawMessage `json:"settings,omitempty"`
	By        string          `json:"by,omitempty"`
	Reason    string          `json:"reason,omitempty"`
}

// PlanSummary is a plan as workflows carry it.
type PlanSummary struct {
	ID      string             `json:"id"`
	Hash    string             `json:"hash"`
	Actions int                `json:"actions"`
	Moves   int                `json:"moves"`
	Bytes   int64              `json:"bytes"`
	ETA     Duration           `json:"eta,omitempty"`
	Held    *planner.Objection `json:"held,omitempty"`
	// CountOnly: it was planned by count alone. A worker of an earlier version does not know that it was asked for.
	CountOnly bool `json:"countOnly,omitempty"`
	// Silent are brokers whose agents did not answer, so that nothing was planned for them.
	Silent []string `json:"silent,omitempty"`
	// Text is the beginning of what is to be done, a line an action, for people.
	Text []string `json:"text,omitempty"`
	// Blocked are partitions that should leave a draining broker and can not now; at most MostShown of BlockedCount.
	Blocked      []planner.Blocked `json:"blocked,omitempty"`
	BlockedCount int               `json:"blockedCount,omitempty"`
	// Left are the brokers that stay above a band, each with the goal and why; at most MostShown of LeftCount.
	Left      []string `json:"left,omitempty"`
	LeftCount int      `json:"leftCount,omitempty"`
	// Limits as the settings have them.
	Limits PlanLimits `json:"limits"`
	// Wave is how many actions are started before the fleet is looked at again.
	Wave int `json:"wave"`
	// Paused is the fleet's pause as it was when the plan was made.
	Paused Pause `json:"paused"`
}

// PlanLimits are the limits of a plan's settings.
type PlanLimits struct {
	MaxInFlight        int      `json:"maxInFlight"`
	TransfersPerBroker int      `json:"transfersPerBroker"`
	MoveRate           ByteSize `json:"moveRate"`
	BrokerRate         ByteSize `json:"brokerRate"`
}

// With is the limits with those that are named.
func (l PlanLimits) With(named Limits) PlanLimits {
	if named.MaxInFlight != nil {
		l.MaxInFlight = *named.MaxInFlight
	}
	if named.TransfersPerBroker != nil {
		l.TransfersPerBroker = *named.TransfersPerBroker
	}
	if named.MoveRate != nil {
		l.MoveRate = *named.MoveRate
	}
	if named.BrokerRate != nil {
		l.BrokerRate = *named.BrokerRate
	}
	return l
}

// EachMove is the pace of one move: a broker's rate is shared by as many as may run there in one direction. 0: no limit.
func (l PlanLimits) EachMove() ByteSize {
	pace := l.MoveRate
	if l.BrokerRate > 0 && l.TransfersPerBroker > 0 {
		if share := max(1, l.BrokerRate/ByteSize(l.TransfersPerBroker)); pace == 0 || share < pace {
			pace = share
		}
	}
	return pace
}

// MostShown bounds every list that is shown.
const MostShown = 20

// ActionsArgs is the input of the Actions activity.
type ActionsArgs struct {
	Plan string `json:"plan"`
	From int    `json:"from"` // the first action's place in the plan
	Most int    `json:"most"`
}

// PlannedAction is one action of a plan as it is carried out.
type PlannedAction struct {
	Seq    int           `json:"seq"`
	Kind   string        `json:"kind"`
	Legs   []planner.Leg `json:"legs"`
	Goal   string        `json:"goal"`
	Reason string        `json:"reason"`
}

// Waiting is the signal by which a move tells the rebalance that started it that it waits for a place in the fleet, or that it
// has found one.
type Waiting struct {
	Workflow string `json:"workflow"`
	Waits    bool   `json:"waits"`
}

// LimitPlanArgs is the input of the LimitPlan activity: what claims of a plan's moves look at.
type LimitPlanArgs struct {
	Plan        string    `json:"plan"`
	MaxInFlight int       `json:"maxInFlight"`    // moves in the fleet below which another of the plan begins
	Held        string    `json:"held,omitempty"` // the code of what holds it: none begins, and those that have take nobody's place
	Over        bool      `json:"over,omitempty"` // its deadline has passed: none begins any more
	At          time.Time `json:"at"`             // when that was decided
}

// RecordArgs is the input of the RecordActions activity.
type RecordArgs struct {
	Plan string      `json:"plan"`
	Ends []ActionEnd `json:"ends"`
	Cool bool        `json:"cool,omitempty"` // what was moved is left alone by plans for a while
	// Rebalance is whose moves they are: its own next plan goes on with their brokers.
	Rebalance string          `json:"rebalance,omitempty"`
	Settings  json.RawMessage `json:"settings,omitempty"`
}

// ActionEnd is how one action ended.
type ActionEnd struct {
	Seq       int    `json:"seq"`
	Topic     string `json:"topic"`
	TopicID   string `json:"topicId,omitempty"`
	Partition int32  `json:"partition"`
	From      string `json:"from"`
	To        string `json:"to"`
	State     string `json:"state"`
	Code      string `json:"code,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// With is the other partition of a swap, which went the other way.
	With *EndedWith `json:"with,omitempty"`
}

// EndedWith is the other partition of a swap that has ended.
type EndedWith struct {
	Topic     string `json:"topic"`
	TopicID   string `json:"topicId,omitempty"`
	Partition int32  `json:"partition"`
}

// Pause says whether moves are paused, by whom and why.
type Pause struct {
	Paused bool   `json:"paused"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Code is what is shown as blocking; CodePaused when empty.
	Code string `json:"code,omitempty"`
}

// PauseWatchArgs is the input of the WatchPause activity: the pause as the caller knows it.
type PauseWatchArgs struct {
	Pause
	// Rebalance is who watches: its plans are in use as long as it does.
	Rebalance string `json:"rebalance,omitempty"`
}

// Blocks is the code that is shown while it lasts.
func (p Pause) Blocks() string {
	if p.Code == "" {
		return CodePaused
	}
	return p.Code
}

// Decide is the input of the updates approve, pause, resume and skip; each takes what it needs.
type Decide struct {
	Hash      string `json:"hash,omitempty"`      // approve: of the plan as it was seen
	Topic     string `json:"topic,omitempty"`     // skip
	Partition *int32 `json:"partition,omitempty"` // skip
	By        string `json:"by,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// ApprovalArgs is the input of the ApprovePlan activity.
type ApprovalArgs struct {
	Plan string `json:"plan"`
	Decide
}

// Adjust is the signal by which a rebalance changes a move it has started.
type Adjust struct {
	Held   *Pause    `json:"held,omitempty"`
	Limit  *ByteSize `json:"limit,omitempty"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// Phases of a rebalance.
const (
	PhasePlanning    = "planning"
	PhaseApproval    = "waiting for approval"
	PhaseWindow      = "waiting for its window"
	PhaseMoving      = "moving"
	PhaseSoaking     = "soaking"
	PhaseReport      = "done"
	PhaseNothingToDo = "nothing to do"
	PhaseFailed      = "failed"
	PhaseTerminated  = "terminated"
)

// RebalanceStatus is the answer of a rebalance's Status query and the text behind its current details.
type RebalanceStatus struct {
	ID            string          `json:"id"`
	Phase         string          `json:"phase"`
	Since         time.Time       `json:"since"`
	Plan          *PlanSummary    `json:"plan,omitempty"`
	Plans         int             `json:"plans"` // made so far
	Next          int             `json:"next"`  // of the plan's actions, the next that was not looked at
	Waiting       int             `json:"waiting"`
	InFlight      []string        `json:"inFlight"`
	Counts        RebalanceCounts `json:"counts"`
	Troubles      []Trouble       `json:"troubles,omitempty"` // the newest
	Limits        PlanLimits      `json:"limits"`
	Paused        *Pause          `json:"paused,omitempty"`
	Window        *WindowState    `json:"window,omitempty"`
	Blocked       string          `json:"blocked,omitempty"` // a stable code
	BlockedReason string          `json:"blockedReason,omitempty"`
	Unblock       string          `json:"unblock,omitempty"`
	ETA           *time.Time      `json:"eta,omitempty"`
	Deadline      *time.Time      `json:"deadline,omitempty"`
	Late          string          `json:"late,omitempty"`  // why the deadline can not be met
	Ended         string          `json:"ended,omitempty"` // of one that failed or was terminated: why
	By            string          `json:"by,omitempty"`
	Reason        string          `json:"reason,omitempty"`
}

// RebalanceResult is the report of a rebalance.
type RebalanceResult struct {
	ID       string          `json:"id"`
	Plan     string          `json:"plan,omitempty"` // the last one's id
	Hash     string          `json:"hash,omitempty"`
	Actions  int             `json:"actions"` // of the last plan
	Plans    int             `json:"plans"`
	Counts   RebalanceCounts `json:"counts"`
	Troubles []Trouble       `json:"troubles,omitempty"`
	Ended    string          `json:"ended"` // a sentence: why it ended
	Late     string          `json:"late,omitempty"`
	// Blocked are partitions that should leave a draining broker and could not.
	Blocked      []planner.Blocked `json:"blocked,omitempty"`
	BlockedCount int               `json:"blockedCount,omitempty"`
	// Silent are brokers whose agents did not answer when the last plan was made.
	Silent []string `json:"silent,omitempty"`
}

// RebalanceWorkflowID is the id under which the command line starts the one rebalance of a fleet, so that Temporal refuses
// a second. Any other id works too: the claims are the locks.
func RebalanceWorkflowID(taskQueue string) string { return "rebalance:" + taskQueue }
