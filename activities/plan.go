package activities

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/activity"

	"portage/brokeragent/control"
	"portage/internal/fleetview"
	"portage/internal/units"
	"portage/metastore"
	"portage/planner"
	"portage/workflows/protocol"
)

// Plans are the activities of Rebalance and Decommission. What they read is the primary's and the agents' own; what they
// decide is the planner's.
type Plans struct {
	Store  *metastore.Store
	Agents *control.Client
	Logger *slog.Logger
	// Planned hears of every plan that was made, once it is kept; nil: nobody does.
	Planned func(*planner.Plan)

	parsed    parsedPlans
	usedEvery time.Duration // plansUsedEvery when 0
}

// Plan looks at the fleet, plans, and keeps the plan with what it was made of. The workflow gets a summary.
//
// The worker dies before the plan is kept: it is made again, of the fleet as it is then. After it, or the reply is lost: the
// plan that was kept under the id is taken, so that what is shown is what is kept.
func (p *Plans) Plan(ctx context.Context, args protocol.PlanArgs) (protocol.PlanSummary, error) {
	return patientPlan(ctx, p, func(ctx context.Context) (protocol.PlanSummary, error) {
		pause, err := p.Store.Paused(ctx)
		if err != nil {
			return protocol.PlanSummary{}, err
		}
		summary, err := p.plan(ctx, args)
		summary.CountOnly = args.CountOnly
		summary.Paused = protocol.Pause{Paused: pause.Paused, By: pause.By, Reason: pause.Reason}
		return summary, err
	})
}

func (p *Plans) plan(ctx context.Context, args protocol.PlanArgs) (protocol.PlanSummary, error) {
	settings, wave, err := p.settingsOf(ctx, args)
	if err != nil {
		return protocol.PlanSummary{}, err
	}
	kept, err := p.Store.FindPlan(ctx, args.ID)
	if err == nil && kept == nil && args.Hash != "" {
		kept, err = p.takePlan(ctx, args, settings)
	}
	if err != nil {
		return protocol.PlanSummary{}, err
	}
	if kept != nil {
		plan, err := parsePlan(kept)
		if err != nil {
			return protocol.PlanSummary{}, err
		}
		plan.ETA = plan.Estimate(settings)
		return summaryOf(kept.ID, plan, kept.Hash, settings, wave), nil
	}
	if _, err := p.Store.SampleLoads(ctx, fleetview.EachSample/3, fleetview.KeptSamples); err != nil {
		return protocol.PlanSummary{}, err
	}
	snapshot, err := fleetview.ReadFor(ctx, p.Store, p.Agents, settings, args.Rebalance)
	if err != nil {
		return protocol.PlanSummary{}, err
	}
	plan, err := p.planOf(ctx, snapshot, settings, args)
	if err != nil {
		return protocol.PlanSummary{}, err
	}
	row := metastore.Plan{ID: args.ID, Rebalance: args.Rebalance, Hash: plan.Hash, Actions: len(plan.Actions), Bytes: plan.BytesMoved, RequestedBy: args.By, Reason: args.Reason, MaxInFlight: limitOf(args, settings)}
	if row.Body, err = json.Marshal(plan); err != nil {
		return protocol.PlanSummary{}, err
	}
	if len(plan.Actions) > 0 { // a plan of nothing needs no proof of what it was made of
		var whole bytes.Buffer
		if _, err := snapshot.WriteTo(&whole); err != nil {
			return protocol.PlanSummary{}, err
		}
		row.Snapshot = whole.Bytes()
	}
	if err := p.Store.SavePlan(ctx, row); err != nil {
		return protocol.PlanSummary{}, err
	}
	if p.Planned != nil {
		p.Planned(plan)
	}
	summary := summaryOf(row.ID, plan, row.Hash, settings, wave)
	for _, b := range snapshot.Brokers {
		if !b.Alive {
			summary.Silent = append(summary.Silent, b.ID)
		}
	}
	return summary, nil
}

// takePlan keeps the newest plan of a hash once more, as the plan of the rebalance that carries it out: what that has moved is
// found by it, and taken back by its id.
func (p *Plans) takePlan(ctx context.Context, args protocol.PlanArgs, settings planner.Settings) (*metastore.Plan, error) {
	plan, err := p.Store.FindPlanByHash(ctx, args.Hash)
	switch {
	case err != nil:
		return nil, err
	case plan == nil:
		return nil, refused(metastore.CodeUnknownPlan, fmt.Sprintf("no plan of hash %s is kept; plan anew with `portage rebalance --dry-run`", args.Hash))
	}
	plan.ID, plan.Rebalance, plan.RequestedBy, plan.Reason, plan.MaxInFlight = args.ID, args.Rebalance, args.By, args.Reason, limitOf(args, settings)
	return plan, p.Store.SavePlan(ctx, *plan)
}

// settings are those of the fleet with what differs; wrong ones end what asked for them.
func (p *Plans) settings(ctx context.Context, overrides json.RawMessage) (planner.Settings, error) {
	settings, err := fleetview.Settings(ctx, p.Store, overrides)
	if errors.Is(err, fleetview.ErrInvalid) {
		err = refused(metastore.CodeInvalidSetting, err.Error())
	}
	return settings, err
}

// mostAtOnce is how many moves may be in flight in the fleet when a rebalance begins another.
func mostAtOnce(settings planner.Settings) int {
	return min(settings.MaxInFlight, protocol.MostInFlight)
}

// limitOf is the limit under which the claims of a plan's moves wait; none for a rebalance that could not change it.
func limitOf(args protocol.PlanArgs, settings planner.Settings) *int {
	if !args.Limited {
		return nil
	}
	most := mostAtOnce(settings)
	return &most
}

// mostInWave bounds what is started before the fleet is looked at again.
const mostInWave = 100

// settingsOf are the settings a plan is made with, and how many of its actions are one wave.
func (p *Plans) settingsOf(ctx context.Context, args protocol.PlanArgs) (settings planner.Settings, wave int, err error) {
	settings, err = p.settings(ctx, args.Settings)
	if wave = settings.MaxActions; wave == 0 || wave > mostInWave {
		wave = mostInWave
	}
	settings.MaxActions = 0 // the whole plan is shown; a wave carries out a part of it
	settings.Swaps = settings.Swaps && args.Swaps
	limits := protocol.PlanLimits{MaxInFlight: settings.MaxInFlight, TransfersPerBroker: settings.TransfersPerBroker, MoveRate: settings.MoveRate, BrokerRate: settings.BrokerRate}.With(args.Limits)
	settings.MaxInFlight, settings.TransfersPerBroker, settings.MoveRate, settings.BrokerRate = limits.MaxInFlight, limits.TransfersPerBroker, limits.MoveRate, limits.BrokerRate
	return settings, wave, err
}

func (p *Plans) planOf(ctx context.Context, s *planner.Snapshot, settings planner.Settings, args protocol.PlanArgs) (*planner.Plan, error) {
	switch {
	case args.CountOnly:
		return planner.BalanceCounts(s, settings)
	case args.Drain:
		return planner.MakeDrain(s, settings, args.Of)
	case args.Undo == "":
		return planner.MakePlan(s, settings)
	}
	moves, err := p.Store.RebalanceMoves(ctx, args.Undo)
	if err != nil {
		return nil, err
	}
	if len(moves) == 0 {
		return nil, refused(metastore.CodeUnknownPlan, fmt.Sprintf("rebalance %q moved nothing that is still recorded; `portage rebalance status` and the report of a rebalance name its id", args.Undo))
	}
	plan := undoOf(s, moves, args.Swaps)
	plan.ETA = plan.Estimate(settings)
	return plan, nil
}

// undoOf plans the way back of every partition that a rebalance has moved: to where it was before the first of its moves.
// What was moved elsewhere since is left where it is. Two that changed places in their last move change places again, where
// swaps are carried out; any other goes back by itself.
func undoOf(s *planner.Snapshot, newestFirst []metastore.Move, swaps bool) *planner.Plan {
	plan := &planner.Plan{FleetID: s.FleetID, TakenAt: s.TakenAt, Actions: []planner.Action{}}
	type partition struct {
		topic  uuid.UUID
		number int32
	}
	first, last := map[partition]metastore.Move{}, map[partition]metastore.Move{}
	var order []partition
	swapped := map[string]int{} // of a swap, the action that takes its first side back
	for _, m := range newestFirst {
		id := partition{m.TopicID, m.Partition}
		if _, seen := last[id]; !seen {
			last[id] = m
			order = append(order, id)
		}
		first[id] = m
	}
	for _, id := range order {
		i := s.Find(last[id].Topic, id.number)
		if i < 0 {
			continue
		}
		at, to := s.Partition(i), first[id].FromBroker
		if at.Owner != last[id].ToBroker || at.Target != "" || to == at.Owner {
			continue
		}
		leg := planner.Leg{Topic: at.Topic, TopicID: id.topic.String(), Partition: at.Partition, From: at.Owner, To: to, Version: at.Version, Bytes: at.Disk}
		for _, c := range at.Copies {
			if c.Broker == to {
				leg.Bytes = max(0, leg.Bytes-c.Bytes)
			}
		}
		plan.BytesMoved += leg.Bytes
		if swap := last[id].Swap; swaps && swap != nil {
			if n, ok := swapped[*swap]; ok && plan.Actions[n].Legs[0].From == leg.To && plan.Actions[n].Legs[0].To == leg.From {
				plan.Actions[n].Kind = planner.ActionSwap
				plan.Actions[n].Legs = append(plan.Actions[n].Legs, leg)
				plan.Actions[n].Reason = "they were in each other's place before"
				continue
			}
			swapped[*swap] = len(plan.Actions)
		}
		plan.Actions = append(plan.Actions, planner.Action{Kind: planner.ActionMove, Legs: []planner.Leg{leg}, Goal: "UNDO", Reason: fmt.Sprintf("it was on %s before", to)})
	}
	plan.Hash = planner.HashOf(s.FleetID, plan.Actions)
	return plan
}

// summaryOf is what a workflow carries of a plan.
func summaryOf(id string, plan *planner.Plan, hash string, settings planner.Settings, wave int) protocol.PlanSummary {
	s := protocol.PlanSummary{ID: id, Hash: hash, Actions: len(plan.Actions), Moves: plan.Moves(), Bytes: plan.BytesMoved, Held: plan.Held,
		BlockedCount: len(plan.Blocked), Blocked: plan.Blocked[:min(len(plan.Blocked), protocol.MostShown)], Wave: wave,
		Limits: protocol.PlanLimits{MaxInFlight: mostAtOnce(settings), TransfersPerBroker: settings.TransfersPerBroker,
			MoveRate: settings.MoveRate, BrokerRate: settings.BrokerRate}}
	if plan.ETA != nil {
		s.ETA = *plan.ETA
	}
	for _, g := range plan.Goals {
		s.LeftCount += len(g.Left)
		for _, l := range g.Left[:min(len(g.Left), protocol.MostShown-len(s.Left))] {
			s.Left = append(s.Left, fmt.Sprintf("%s stays above its band of %s: %s", l.Broker, g.Goal, l.Reason))
		}
	}
	for i, a := range plan.Actions {
		if i == protocol.MostShown {
			s.Text = append(s.Text, fmt.Sprintf("and %d more", len(plan.Actions)-i))
			break
		}
		s.Text = append(s.Text, Line(a))
	}
	return s
}

// Line says in one line what an action does and why.
func Line(a planner.Action) string {
	text := ""
	for i, l := range a.Legs {
		if i > 0 {
			text += " with "
		}
		text += fmt.Sprintf("%s/%d %s → %s (%s)", l.Topic, l.Partition, l.From, l.To, units.ByteSize(l.Bytes))
	}
	return fmt.Sprintf("%s for %s: %s", text, a.Goal, a.Reason)
}

// ApprovePlan records who approved a plan.
func (p *Plans) ApprovePlan(ctx context.Context, args protocol.ApprovalArgs) error {
	_, err := patientPlan(ctx, p, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.Store.ApprovePlan(ctx, args.Plan, args.By, args.Reason)
	})
	return err
}

// Actions reads a part of a kept plan.
func (p *Plans) Actions(ctx context.Context, args protocol.ActionsArgs) ([]protocol.PlannedAction, error) {
	return patientPlan(ctx, p, func(ctx context.Context) ([]protocol.PlannedAction, error) {
		if err := p.Store.UsePlan(ctx, args.Plan); err != nil {
			return nil, err
		}
		actions, known, err := p.actionsOf(ctx, args.Plan)
		if err != nil {
			return nil, err
		}
		if !known {
			return nil, refused(metastore.CodeUnknownPlan, fmt.Sprintf("plan %s is not kept any more; plan anew", args.Plan))
		}
		all := []protocol.PlannedAction{}
		for i := args.From; i < min(len(actions), args.From+args.Most); i++ {
			a := actions[i]
			all = append(all, protocol.PlannedAction{Seq: i, Kind: a.Kind, Legs: a.Legs, Goal: a.Goal, Reason: a.Reason})
		}
		return all, nil
	})
}

// LimitPlan tells the metastore what claims of the plan's moves look at.
//
// The worker dies, or its reply is lost: the repeat writes the same. Postgres dies: waited for.
func (p *Plans) LimitPlan(ctx context.Context, args protocol.LimitPlanArgs) error {
	_, err := patientPlan(ctx, p, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.Store.LimitPlan(ctx, args.Plan, metastore.PlanLimit{MaxInFlight: args.MaxInFlight, Held: args.Held, Over: args.Over, At: args.At})
	})
	return err
}

// RecordActions keeps how actions ended, for people, and puts the cooldowns on what was moved.
func (p *Plans) RecordActions(ctx context.Context, args protocol.RecordArgs) error {
	_, err := patientPlan(ctx, p, func(ctx context.Context) (struct{}, error) {
		settings, err := p.settings(ctx, args.Settings)
		if err != nil {
			return struct{}{}, err
		}
		ends := make([]metastore.ActionEnd, len(args.Ends))
		var partitions, brokers []string
		for i, e := range args.Ends {
			ends[i] = metastore.ActionEnd{Seq: e.Seq, Topic: e.Topic, Partition: e.Partition, State: e.State, Code: e.Code, Reason: e.Reason}
			if e.State != protocol.ActionMoved {
				continue
			}
			cool := func(topicID string, partition int32) {
				if topic, err := uuid.Parse(topicID); err == nil {
					partitions = append(partitions, metastore.PartitionSubject(topic, partition))
				}
			}
			cool(e.TopicID, e.Partition)
			if e.With != nil {
				cool(e.With.TopicID, e.With.Partition)
			}
			brokers = append(brokers, metastore.BrokerSubject(e.From), metastore.BrokerSubject(e.To))
		}
		if err := p.Store.RecordActions(ctx, args.Plan, ends); err != nil {
			return struct{}{}, err
		}
		if !args.Cool {
			return struct{}{}, nil
		}
		if err := p.Store.Cool(ctx, partitions, time.Duration(settings.PartitionCooldown), "moved by a rebalance", args.Rebalance); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, p.Store.Cool(ctx, brokers, time.Duration(settings.BrokerCooldown), "took part in a rebalance", args.Rebalance)
	})
	return err
}

const (
	// pauseLookEvery is how soon a pause of the fleet is noticed: what is in flight stops within 2 s.
	pauseLookEvery = 500 * time.Millisecond
	// plansUsedEvery is how often the plans of a rebalance that runs are marked as used: retention keeps them a day at least.
	plansUsedEvery = time.Hour
	// plansUsedAgain is how soon that is tried again.
	plansUsedAgain = time.Minute
)

// WatchPause returns once the fleet's pause is not what the caller knows. As long as it looks, the rebalance runs, so
// retention keeps its plans.
func (p *Plans) WatchPause(ctx context.Context, args protocol.PauseWatchArgs) (protocol.Pause, error) {
	known := args.Pause
	var useAt time.Time
	for {
		activity.RecordHeartbeat(ctx)
		now, err := p.Store.Paused(ctx)
		if err == nil && args.Rebalance != "" && !time.Now().Before(useAt) {
			useAt = time.Now().Add(cmp.Or(p.usedEvery, plansUsedEvery))
			if err := p.Store.UsePlans(ctx, args.Rebalance); err != nil {
				useAt = time.Now().Add(plansUsedAgain)
				p.Logger.Warn("the plans of a running rebalance were not marked as used", "rebalance", args.Rebalance, "error", err)
			}
		}
		if seen := (protocol.Pause{Paused: now.Paused, By: now.By, Reason: now.Reason}); err == nil && seen.Paused != known.Paused {
			return seen, nil
		}
		select {
		case <-ctx.Done():
			return known, ctx.Err()
		case <-activity.GetWorkerStopChannel(ctx):
			return known, errWorkerStopping()
		case <-time.After(pauseLookEvery):
		}
	}
}

// patientPlan repeats a step while the metastore does not answer; a refusal ends it.
func patientPlan[R any](ctx context.Context, p *Plans, step func(context.Context) (R, error)) (R, error) {
	return patiently(ctx, &Moves{Store: p.Store, Agents: p.Agents, Logger: p.Logger}, protocol.CodeMetastoreUnreachable, step)
}
