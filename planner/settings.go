package planner

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"portage/internal/units"
)

// Settings are all that can be set of how plans are made. DefaultSettings has the defaults; a zero in a Settings means
// zero, never "the default".
type Settings struct {
	Goals Goals `json:"goals"`

	// MaxActions is how many partitions one plan moves at most (M43); 0: as many as it takes.
	MaxActions int `json:"maxActions"`
	// Swaps: two partitions may change places where no single one fits.
	Swaps bool `json:"swaps"`
	// Margin is how far above its band a broker must be to shed, as a fraction of the mean; it then sheds until it is within its
	// band. So a little more load does not move anything (F27). It is also what a swap must gain at least, unless it brings
	// the broker into its band. 0: no margin.
	Margin float64 `json:"margin"`

	// Window is how many samples of a partition are kept (M36), at least 1.
	Window int `json:"window"`
	// Percentile of the window's samples that counts as the load, 0 to 1 (M37).
	Percentile float64 `json:"percentile"`
	// MinValid is how many samples a load needs to be trusted (M38); 0: it is trusted without any.
	MinValid int `json:"minValid"`

	// BrokerCooldown and PartitionCooldown are for how long autobalance leaves alone what it has just moved (F27); 0: not at all.
	BrokerCooldown    units.Duration `json:"brokerCooldown"`
	PartitionCooldown units.Duration `json:"partitionCooldown"`

	// RoomMargin is what must be free at a destination beside the partition itself, as a fraction of it.
	RoomMargin float64 `json:"roomMargin"`

	// MaxInFlight is how many moves may be in flight in the fleet, whoever started them, for a rebalance to begin another; 0: none
	// is started (H-N12, N24).
	MaxInFlight int `json:"maxInFlight"`
	// TransfersPerBroker is how many copies a broker gives, and how many it takes, at once; 0: none.
	TransfersPerBroker int `json:"transfersPerBroker"`
	// BrokerRate and MoveRate limit the bytes a second of all copies of a broker in one direction, and of one move; 0: no limit.
	BrokerRate units.ByteSize `json:"brokerRate"`
	MoveRate   units.ByteSize `json:"moveRate"`
	// AssumedRate is the bytes a second of one unlimited copy, and MoveOverhead what a move takes whatever its size: what the
	// estimate of how long a plan takes is made with. Both are above 0.
	AssumedRate  units.ByteSize `json:"assumedRate"`
	MoveOverhead units.Duration `json:"moveOverhead"`

	Score ScoreSettings `json:"score"`
}

// Goals are the settings of each goal.
type Goals [numGoals]GoalSettings

// GoalSettings are the settings of one goal.
type GoalSettings struct {
	Enabled bool `json:"enabled"`
	// Priority: the lower the earlier. A later goal never breaks an earlier one's band.
	Priority int `json:"priority"`
	// DetectThreshold: below this mean per broker nothing is done for the goal (M41). Bytes a second, bytes, or partitions.
	DetectThreshold units.ByteSize `json:"detectThreshold"`
	// Deviation: a broker above its mean by more than this fraction is overloaded.
	Deviation float64 `json:"deviation"`
	// TrustedOnly: partitions whose load is not trusted do not move for this goal (M38).
	TrustedOnly bool `json:"trustedOnly"`
}

// ScoreSettings weigh the parts of a broker's score (F25). A part of weight 0 does not count.
type ScoreSettings struct {
	Owned    float64 `json:"owned"`
	Followed float64 `json:"followed"`
	History  float64 `json:"history"`
	Traffic  float64 `json:"traffic"`
	Sync     float64 `json:"sync"`
	// HistoryHalf is k in h/(h+k): a partition of this size counts for a half, above 0.
	HistoryHalf units.ByteSize `json:"historyHalf"`
}

// DefaultSettings are the defaults (M36, M40, M43, F27, N24).
func DefaultSettings() Settings {
	return Settings{
		Goals: Goals{
			NWIn:           {Enabled: true, Priority: 10, DetectThreshold: 1 << 20, Deviation: 0.20, TrustedOnly: true},
			NWOut:          {Enabled: true, Priority: 20, DetectThreshold: 1 << 20, Deviation: 0.20, TrustedOnly: true},
			Disk:           {Enabled: true, Priority: 30, DetectThreshold: 100 << 20, Deviation: 0.25, TrustedOnly: true},
			PartitionCount: {Enabled: true, Priority: 40, Deviation: 0.20},
		},
		MaxActions: 50, Swaps: true, Margin: 0.02,
		Window: 60, Percentile: 0.9, MinValid: 1,
		BrokerCooldown: units.Duration(10 * time.Minute), PartitionCooldown: units.Duration(30 * time.Minute),
		RoomMargin:  0.10,
		MaxInFlight: 8, TransfersPerBroker: 2,
		AssumedRate: 100 << 20, MoveOverhead: units.Duration(time.Second),
		Score: ScoreSettings{Owned: 1, Followed: 1, History: 1, Traffic: 1, Sync: 1, HistoryHalf: 1 << 30},
	}
}

// Validate names every fault, each in a sentence of its own; nil when there is none.
func (s *Settings) Validate() error {
	var faults []string
	require := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	for g, of := range s.Goals {
		require(of.DetectThreshold >= 0, "goals.%s.detectThreshold is %d; it is not negative", Goal(g), of.DetectThreshold)
		require(within(of.Deviation, 0, 10), "goals.%s.deviation is %v; it is 0 to 10, 0.2 is 20 %%", Goal(g), of.Deviation)
		for other := range g {
			require(of.Priority != s.Goals[other].Priority, "goals.%s and goals.%s have the same priority %d; one comes first", Goal(other), Goal(g), of.Priority)
		}
	}
	require(s.MaxActions >= 0, "maxActions is %d; it is not negative, 0 for no cap", s.MaxActions)
	require(within(s.Margin, 0, 1), "margin is %v; it is 0 to 1, 0.02 is 2 %%", s.Margin)
	require(s.Window >= 1 && s.Window <= maxWindow, "window is %d; it is 1 to %d samples", s.Window, maxWindow)
	require(within(s.Percentile, 0, 1), "percentile is %v; it is 0 to 1", s.Percentile)
	require(s.MinValid >= 0 && s.MinValid <= s.Window, "minValid is %d; it is 0 to the window, %d", s.MinValid, s.Window)
	require(s.BrokerCooldown >= 0 && s.PartitionCooldown >= 0, "brokerCooldown and partitionCooldown are not negative, 0 for none")
	require(within(s.RoomMargin, 0, 10), "roomMargin is %v; it is 0 to 10, 0.1 is 10 %%", s.RoomMargin)
	require(s.MaxInFlight >= 0, "maxInFlight is %d; it is not negative, 0 starts nothing", s.MaxInFlight)
	require(s.TransfersPerBroker >= 0, "transfersPerBroker is %d; it is not negative, 0 starts nothing", s.TransfersPerBroker)
	require(s.BrokerRate >= 0 && s.MoveRate >= 0, "brokerRate and moveRate are not negative, 0 for no limit")
	require(s.AssumedRate > 0, "assumedRate is %d; it is above 0", s.AssumedRate)
	require(s.MoveOverhead > 0, "moveOverhead is above 0")
	for name, w := range map[string]float64{"owned": s.Score.Owned, "followed": s.Score.Followed, "history": s.Score.History, "traffic": s.Score.Traffic, "sync": s.Score.Sync} {
		require(within(w, 0, 1e6), "score.%s is %v; it is 0 to 1000000", name, w)
	}
	require(s.Score.HistoryHalf > 0, "score.historyHalf is %d; it is above 0", s.Score.HistoryHalf)
	if len(faults) == 0 {
		return nil
	}
	slices.Sort(faults)
	return errors.New("the planner's settings are wrong: " + strings.Join(faults, "; "))
}

// within is false for what is not a number.
func within(v, low, high float64) bool { return !math.IsNaN(v) && v >= low && v <= high }

// byPriority are the enabled goals, the first first.
func (s *Settings) byPriority() []Goal {
	var goals []Goal
	for g := range Goal(numGoals) {
		if s.Goals[g].Enabled {
			goals = append(goals, g)
		}
	}
	slices.SortFunc(goals, func(a, b Goal) int { return s.Goals[a].Priority - s.Goals[b].Priority })
	return goals
}
