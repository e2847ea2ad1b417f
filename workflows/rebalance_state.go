package workflows

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"portage/planner"
	"portage/workflows/protocol"
)

// keptTroubles bounds what a report says of what moved nothing; the metastore has all of it.
const keptTroubles = 50

// rebalance is the state of one Rebalance workflow.
type rebalance struct {
	in    protocol.RebalanceInput
	id    string // the first run's
	began time.Time
	now   func() time.Time
	// watching ends with the rebalance.
	watching workflow.Context

	plan        *protocol.PlanSummary // being carried out
	last        protocol.PlanSummary
	next        int          // the plan's first action that was not read
	done        map[int]bool // actions of the plan that were started or left out, among those that are read again
	queue       []protocol.PlannedAction
	flights     []*flight
	ends        []protocol.ActionEnd // not recorded yet
	limits      protocol.PlanLimits
	approved    *protocol.Decide
	paused      *protocol.Pause // this rebalance
	fleet       protocol.Pause  // all of them
	outside     *protocol.Pause // it is outside its window
	window      *protocol.WindowState
	closedAt    time.Time // the window
	stale       bool      // the plan is of before the window closed
	changed     bool
	canaryOver  bool
	watched     map[int]bool // the canary's actions, when lags are looked at
	lags        []protocol.PartitionLags
	limitsFleet bool                   // a rebalance that began before moves of others counted goes on without
	limited     protocol.LimitPlanArgs // what the metastore was told last of the plan, without when
	limiting    bool                   // it is being told
	swaps       bool                   // planned and carried out; a rebalance that began before there were any goes on without

	children, startedInWave, plans int
	movedBefore                    int // this wave
	counts                         protocol.RebalanceCounts
	troubles                       []protocol.Trouble
	tried, skipped                 map[string]string
	leftOut                        map[string]bool // skipped partitions that the report tells of
	repeats                        map[string]int
	longestWait                    time.Duration
	movedBytes                     int64 // since the plan
	plannedAt                      time.Time

	phase                  string
	since                  time.Time
	blocked, blockedReason string
	eta                    *time.Time
	unheldETA              time.Time         // without the hours that the window is closed
	toldOf                 planner.Objection // its decommission
	lateBecause, ended     string
}

func newRebalance(ctx workflow.Context, in protocol.RebalanceInput) *rebalance {
	r := &rebalance{in: in, id: workflow.GetInfo(ctx).WorkflowExecution.RunID, began: workflow.Now(ctx), now: func() time.Time { return workflow.Now(ctx) },
		tried: map[string]string{}, skipped: map[string]string{}, leftOut: map[string]bool{}, repeats: map[string]int{}, done: map[int]bool{}}
	c := in.Carried
	if c == nil {
		return r
	}
	r.id, r.began, r.plan, r.next, r.counts, r.troubles, r.paused, r.plans, r.canaryOver = c.ID, c.Began, c.Plan, c.Next, c.Counts, c.Troubles, c.Paused, c.Plans, c.Canary
	r.fleet = c.Fleet
	for _, seq := range c.Done {
		r.done[seq] = true
	}
	if c.Tried != nil {
		r.tried = c.Tried
	}
	if c.Skipped != nil {
		r.skipped = c.Skipped
	}
	if c.LeftOut != nil {
		r.leftOut = c.LeftOut
	}
	if r.plan != nil {
		r.last, r.limits = *r.plan, r.plan.Limits.With(in.Limits)
	}
	return r
}

// expose sets up the query and the updates.
func (r *rebalance) expose(ctx workflow.Context) error {
	r.hearWaiting(ctx)
	update := func(name, what string, check func(protocol.Decide) error, do func(workflow.Context, protocol.Decide)) error {
		return workflow.SetUpdateHandlerWithOptions(ctx, name, func(ctx workflow.Context, d protocol.Decide) (protocol.RebalanceStatus, error) {
			do(ctx, d)
			r.changed = true
			r.show(ctx)
			return r.status(), nil
		}, workflow.UpdateHandlerOptions{Validator: func(_ workflow.Context, d protocol.Decide) error { return check(d) }, Description: what})
	}
	return errors.Join(
		workflow.SetQueryHandlerWithOptions(ctx, protocol.QueryStatus, func() (protocol.RebalanceStatus, error) { return r.status(), nil },
			workflow.QueryHandlerOptions{Description: "the plan, what is in flight, how the rest ended, what blocks"}),
		update(protocol.UpdateApprove, `lets the plan be carried out: {"hash":"..."}`, r.againstApproval, func(_ workflow.Context, d protocol.Decide) { r.approved = &d }),
		update(protocol.UpdatePause, "stops the copies and starts nothing more: {by, reason}", r.againstPause, func(ctx workflow.Context, d protocol.Decide) {
			r.paused = &protocol.Pause{Paused: true, By: d.By, Reason: d.Reason}
			r.hold(ctx)
		}),
		update(protocol.UpdateResume, "goes on: {by, reason}", r.againstResume, func(ctx workflow.Context, _ protocol.Decide) {
			r.paused = nil
			r.hold(ctx)
		}),
		update(protocol.UpdateSkip, `leaves one partition out: {"topic":"orders","partition":3}`, againstSkip, r.skip),
		workflow.SetUpdateHandlerWithOptions(ctx, protocol.UpdateLimits, r.setLimits,
			workflow.UpdateHandlerOptions{Validator: againstLimits, Description: `changes the limits: {"maxInFlight":4,"moveRate":"32MiB"}`}))
}

func (r *rebalance) againstApproval(d protocol.Decide) error {
	switch {
	case r.phase != protocol.PhaseApproval || r.plan == nil:
		return errors.New("no plan waits for an approval")
	case len(d.Hash) < 8 || !strings.HasPrefix(r.plan.Hash, d.Hash):
		return fmt.Errorf("the plan that waits has hash %s, not %q; look at it and approve that", short(r.plan.Hash), d.Hash)
	}
	return nil
}

func (r *rebalance) againstPause(d protocol.Decide) error {
	if strings.TrimSpace(d.Reason) == "" {
		return errors.New(`say why: {"reason":"..."}`)
	}
	return nil
}

func (r *rebalance) againstResume(protocol.Decide) error {
	if r.paused == nil && r.fleet.Paused {
		return errors.New("the whole fleet is paused: `portage cluster resume --reason ...`")
	}
	if r.paused == nil && r.outside != nil {
		return fmt.Errorf("the rebalance is not paused: %s, and it goes on then", r.outside.Reason)
	}
	if r.paused == nil {
		return errors.New("the rebalance is not paused")
	}
	return nil
}

func againstSkip(d protocol.Decide) error {
	if d.Topic == "" || d.Partition == nil || strings.TrimSpace(d.Reason) == "" {
		return errors.New(`name the partition and say why: {"topic":"orders","partition":3,"reason":"..."}`)
	}
	return nil
}

func againstLimits(_ workflow.Context, l protocol.Limits) error {
	if l.Empty() {
		return errors.New(`nothing to change: give {"maxInFlight":4}, "transfersPerBroker", "moveRate" or "brokerRate"`)
	}
	if faults := l.Faults(); len(faults) > 0 {
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}

// skip leaves a partition out of this rebalance; its move is cancelled when it is under way and not committed.
func (r *rebalance) skip(ctx workflow.Context, d protocol.Decide) {
	name := fmt.Sprintf("%s/%d", d.Topic, *d.Partition)
	why := fmt.Sprintf("skipped by %s: %s", d.By, d.Reason)
	r.skipped[name] = why
	for _, f := range r.flights {
		if concerns(f.action, name) {
			f.skip = &d
			f.cancel()
		}
	}
	r.queue = slices.DeleteFunc(r.queue, func(a protocol.PlannedAction) bool {
		if !concerns(a, name) {
			return false
		}
		r.done[a.Seq] = true
		r.leaveOut(ctx, a, why)
		return true
	})
}

// setLimits changes the limits; moves in flight are told their new pace.
func (r *rebalance) setLimits(ctx workflow.Context, l protocol.Limits) (protocol.RebalanceStatus, error) {
	before := r.limits.EachMove()
	r.limits = r.limits.With(l)
	r.in.Limits = merged(r.in.Limits, l)
	if pace := r.limits.EachMove(); pace != before {
		r.adjust(ctx, func() protocol.Adjust {
			pace := r.limits.EachMove()
			return protocol.Adjust{Limit: &pace}
		})
	}
	r.limitPlan(ctx)
	r.lookAtWaiting(ctx)
	r.changed = true
	r.estimate(ctx)
	r.show(ctx)
	return r.status(), nil
}

// merged are the limits a with those that b names.
func merged(a, b protocol.Limits) protocol.Limits {
	if b.MaxInFlight != nil {
		a.MaxInFlight = b.MaxInFlight
	}
	if b.TransfersPerBroker != nil {
		a.TransfersPerBroker = b.TransfersPerBroker
	}
	if b.MoveRate != nil {
		a.MoveRate = b.MoveRate
	}
	if b.BrokerRate != nil {
		a.BrokerRate = b.BrokerRate
	}
	return a
}

// watchPause follows the fleet's pause until the rebalance ends. The activity that looks keeps the rebalance's plans from
// growing too old meanwhile, however long it waits for an approval or its window.
func (r *rebalance) watchPause() {
	workflow.Go(r.watching, func(ctx workflow.Context) {
		options := workflow.ActivityOptions{StartToCloseTimeout: 30 * 24 * time.Hour, HeartbeatTimeout: 5 * time.Second, Summary: "watch the fleet's pause",
			RetryPolicy: &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 2 * time.Second}}
		for ctx.Err() == nil {
			var now protocol.Pause
			if err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), protocol.ActivityWatchPause, protocol.PauseWatchArgs{Pause: r.fleet, Rebalance: r.id}).Get(ctx, &now); err != nil {
				return // cancelled: the rebalance ends
			}
			r.fleet = now
			r.hold(ctx)
			r.changed = true
		}
	})
}

// pause is the pause in force; nil when there is none.
func (r *rebalance) pause() *protocol.Pause {
	if r.paused != nil {
		return r.paused
	}
	if r.fleet.Paused {
		return &r.fleet
	}
	return r.outside
}

// hold tells the moves in flight whether they are held.
func (r *rebalance) hold(ctx workflow.Context) {
	if p := r.pause(); p != nil {
		if r.phase != protocol.PhaseApproval || p.Code == "" { // it waits for a person then, whatever the clock says
			r.block(ctx, p.Blocks(), heldBecause(*p))
		}
	} else if holds(r.blocked) {
		r.block(ctx, "", "")
		r.lookAtWaiting(ctx)
	}
	r.limitPlan(ctx)
	r.adjust(ctx, func() protocol.Adjust {
		held := protocol.Pause{}
		if p := r.pause(); p != nil {
			held = *p
		}
		return protocol.Adjust{Held: &held}
	})
}

// adjust changes every move in flight. One that has ended needs no change; one that has not started yet is told, once it has, what holds
// then, and keeps no other waiting.
func (r *rebalance) adjust(ctx workflow.Context, now func() protocol.Adjust) {
	alone := workflow.GetVersion(ctx, "tell-each-move-by-itself", workflow.DefaultVersion, 1) >= 1
	for _, f := range slices.Clone(r.flights) {
		if !alone {
			f.future.SignalChildWorkflow(ctx, protocol.SignalAdjust, now())
			continue
		}
		workflow.Go(r.watching, func(ctx workflow.Context) {
			if f.future.GetChildWorkflowExecution().Get(ctx, nil) == nil {
				f.future.SignalChildWorkflow(ctx, protocol.SignalAdjust, now())
			}
		})
	}
}

// estimate says when the plan will be done, and early when that is after the deadline.
func (r *rebalance) estimate(ctx workflow.Context) {
	now := workflow.Now(ctx)
	if r.plan == nil || r.plannedAt.IsZero() {
		r.plannedAt, r.movedBytes = now, 0
		r.unheldETA = now.Add(time.Duration(r.last.ETA))
	} else if took := now.Sub(r.plannedAt); r.movedBytes > 0 && took > time.Second {
		left := float64(max(0, r.last.Bytes-r.movedBytes)) / (float64(r.movedBytes) / took.Seconds())
		r.unheldETA = now.Add(time.Duration(left * float64(time.Second)))
	}
	if soonest := now.Add(r.atLeast()); soonest.After(r.unheldETA) && r.last.Actions > 0 {
		r.unheldETA = soonest
	}
	if len(r.flights) > 0 && !r.unheldETA.After(now) {
		r.unheldETA = now.Add(time.Second) // it takes longer than was thought
	}
	eta := r.unheldETA
	if w := r.window; w != nil {
		switch {
		case w.Open && eta.After(w.Until):
			eta = eta.Add(w.Then.Sub(w.Until)) // it stands still meanwhile
		case !w.Open && w.Until.After(now):
			eta = eta.Add(w.Until.Sub(r.stillSince()))
		}
	}
	r.eta = &eta
	r.lateBecause = ""
	if d := r.in.Deadline; d != nil && r.last.Actions > 0 && r.eta.After(*d) {
		r.lateBecause = fmt.Sprintf("it will take until about %s and its deadline is %s: raise the limits, or let less move", r.eta.UTC().Format(time.RFC3339), d.UTC().Format(time.RFC3339))
	}
}

// atLeast is how long what is left takes at least at the present limits; 0 when they do not limit the bytes.
func (r *rebalance) atLeast() time.Duration {
	rate := float64(r.limits.EachMove()) * float64(min(r.limits.MaxInFlight, protocol.MostInFlight))
	if rate <= 0 {
		return 0
	}
	return time.Duration(float64(max(0, r.last.Bytes-r.movedBytes)) / rate * float64(time.Second))
}

func (r *rebalance) run(ctx workflow.Context, activity, summary string, args, result any) error {
	return start(ctx, activity, summary, args).Get(ctx, result)
}

func (r *rebalance) enter(ctx workflow.Context, phase string) {
	r.phase, r.since, r.blocked, r.blockedReason = phase, workflow.Now(ctx), "", ""
	code := notBlocked
	if p := r.pause(); p != nil && phase == protocol.PhaseMoving {
		r.blocked, r.blockedReason, code = p.Blocks(), heldBecause(*p), p.Blocks()
	}
	upsert(ctx, phaseKey.ValueSet(phase), blockedKey.ValueSet(code))
	r.show(ctx)
	r.tellDecommission(ctx)
}

func (r *rebalance) block(ctx workflow.Context, code, reason string) {
	if code != r.blocked {
		shown := code
		if code == "" {
			shown = notBlocked
		}
		upsert(ctx, blockedKey.ValueSet(shown))
	}
	r.blocked, r.blockedReason = code, reason
	r.show(ctx)
	r.tellDecommission(ctx)
}

// tellDecommission lets the decommission whose moves these are show what they wait for. It is gone: there is nobody to show it.
func (r *rebalance) tellDecommission(ctx workflow.Context) {
	parent := workflow.GetInfo(ctx).ParentWorkflowExecution
	now := planner.Objection{Code: r.blocked, Reason: r.blockedReason}
	if parent == nil || r.in.DrainBroker == "" || r.toldOf == now || ctx.Err() != nil {
		return
	}
	r.toldOf = now
	workflow.SignalExternalWorkflow(ctx, parent.ID, "", protocol.SignalBlocked, now)
}

func upsert(ctx workflow.Context, updates ...temporal.SearchAttributeUpdate) {
	if err := workflow.UpsertTypedSearchAttributes(ctx, updates...); err != nil {
		workflow.GetLogger(ctx).Warn("search attributes were not set", "error", err)
	}
}

func (r *rebalance) status() protocol.RebalanceStatus {
	s := protocol.RebalanceStatus{ID: r.id, Phase: r.phase, Since: r.since, Plans: r.plans, Next: r.next, Waiting: len(r.queue), InFlight: []string{}, Counts: r.counts,
		Troubles: r.troubles[max(0, len(r.troubles)-protocol.MostShown):], Limits: r.limits, Paused: r.pause(), Window: r.window, Blocked: r.blocked, BlockedReason: r.blockedReason,
		Unblock: protocol.Unblock(r.blocked, protocol.Place{}), ETA: r.eta, Late: r.lateBecause, By: r.in.By, Reason: r.in.Reason}
	if r.last.ID != "" {
		s.Plan = &r.last
	}
	for _, f := range r.flights {
		way := wayOf(f.action)
		if f.waits {
			way += ", waiting for a place in the fleet"
		}
		s.InFlight = append(s.InFlight, way)
	}
	return s
}

// show writes the status where the UI shows it without any tool.
func (r *rebalance) show(ctx workflow.Context) {
	s := r.status()
	var b strings.Builder
	fmt.Fprintf(&b, "**%s** since %s", s.Phase, s.Since.UTC().Format(time.RFC3339))
	if s.By != "" {
		fmt.Fprintf(&b, ", asked for by %s", s.By)
	}
	if s.Reason != "" {
		fmt.Fprintf(&b, ": %s", s.Reason)
	}
	c := s.Counts
	fmt.Fprintf(&b, "\n\n%d moved (%s), %d failed, %d held, %d skipped, %d cancelled; %d in flight\n\n", c.Moved, protocol.ByteSize(c.Bytes), c.Failed, c.Held, c.Skipped, c.Cancelled, len(s.InFlight))
	if s.Blocked != "" {
		fmt.Fprintf(&b, "**blocked: `%s`**: %s\n\n", s.Blocked, s.BlockedReason)
		if s.Unblock != "" {
			fmt.Fprintf(&b, "to unblock it: %s\n\n", s.Unblock)
		}
	}
	if w := s.Window; w != nil && w.Open {
		fmt.Fprintf(&b, "its window (%s) closes at %s\n\n", r.in.Window, w.Until.Format(time.RFC3339))
	}
	if s.Late != "" {
		fmt.Fprintf(&b, "**late:** %s\n\n", s.Late)
	}
	if p := s.Plan; p != nil {
		fmt.Fprintf(&b, "plan %d, hash `%s`: %d actions, %s to copy\n\n", s.Plans, short(p.Hash), p.Actions, protocol.ByteSize(p.Bytes))
		for _, line := range p.Text {
			fmt.Fprintf(&b, "- %s\n", line)
		}
		b.WriteString("\n")
	}
	for _, line := range s.InFlight {
		fmt.Fprintf(&b, "- in flight: %s\n", line)
	}
	for _, t := range s.Troubles {
		fmt.Fprintf(&b, "- %s\n", t)
	}
	if r.ended != "" {
		fmt.Fprintf(&b, "\n%s\n", r.ended)
	}
	fmt.Fprintf(&b, "\nrebalance id `%s`\n", s.ID)
	workflow.SetCurrentDetails(ctx, b.String())
}

// report is the result of a rebalance that came to its end.
func (r *rebalance) report(ctx workflow.Context) *protocol.RebalanceResult {
	r.enter(ctx, protocol.PhaseReport)
	return &protocol.RebalanceResult{ID: r.id, Plan: r.last.ID, Hash: r.last.Hash, Actions: r.last.Actions, Plans: r.plans, Counts: r.counts, Troubles: r.troubles, Ended: r.ended,
		Late: r.lateBecause, Blocked: r.last.Blocked, BlockedCount: r.last.BlockedCount, Silent: r.last.Silent}
}

// failed maps the last error to what people see.
func (r *rebalance) failed(ctx workflow.Context, err error) error {
	show, _ := workflow.NewDisconnectedContext(ctx)
	if temporal.IsCanceledError(err) || ctx.Err() != nil {
		r.ended = fmt.Sprintf("cancelled: %d partitions were moved, %d stay where they were", r.counts.Moved, r.counts.Cancelled)
		r.enter(show, protocol.PhaseCancelled)
		return temporal.NewCanceledError(r.ended)
	}
	r.ended = reasonOf(err)
	r.show(show)
	return err
}

func short(hash string) string { return hash[:min(len(hash), 12)] }
