package workflows

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

// liveWithin is how lately a group must have committed for its lag to count, at least: what nobody reads falls behind with
// every write, whatever is moved.
const liveWithin = 5 * time.Minute

// watchLags chooses the canary's actions, the first of the plan that are left to do, and looks how far the groups are behind on
// their partitions, before any of them begins. Without the canary's check of lags it does nothing.
func (r *rebalance) watchLags(ctx workflow.Context, most int) error {
	if !r.canaryPending() || r.in.Canary.Lag == nil || r.watched != nil || r.pause() != nil || len(r.queue) == 0 {
		return nil
	}
	watched := map[int]bool{}
	var args protocol.LagArgs
	for _, a := range r.queue[:min(most, len(r.queue))] {
		watched[a.Seq] = true
		for _, leg := range a.Legs {
			args.Partitions = append(args.Partitions, protocol.LagOf{Topic: leg.Topic, TopicID: leg.TopicID, Partition: leg.Partition})
		}
	}
	args.LiveWithin = max(protocol.Duration(liveWithin), r.in.Canary.Soak)
	if err := r.askLags(ctx, "how far the consumers of the first partitions are behind", args, &r.lags); err != nil {
		return err
	}
	if r.pause() != nil {
		r.lags = nil // they are old when it goes on
		return nil
	}
	r.watched = watched
	return nil
}

// mayBegin reports whether anything of the queue belongs to this wave.
func (r *rebalance) mayBegin() bool {
	if r.watched == nil {
		return len(r.queue) > 0
	}
	return slices.ContainsFunc(r.queue, func(a protocol.PlannedAction) bool { return r.watched[a.Seq] })
}

// fellBehind says which group is further behind than the canary allows; "" when none is.
func (r *rebalance) fellBehind(ctx workflow.Context) (string, error) {
	if r.in.Canary.Lag == nil || len(r.lags) == 0 {
		return "", nil
	}
	var args protocol.LagArgs
	for _, p := range r.lags {
		args.Partitions = append(args.Partitions, p.LagOf)
	}
	var after []protocol.PartitionLags
	if err := r.askLags(ctx, "how far the consumers of the first partitions are behind after the soak", args, &after); err != nil || after == nil {
		return "", err
	}
	return behind(r.lags, after, *r.in.Canary.Lag), nil
}

// askLags asks until the owners have answered, or the deadline has passed: then nothing more is started, and there is no answer.
func (r *rebalance) askLags(ctx workflow.Context, summary string, args protocol.LagArgs, lags *[]protocol.PartitionLags) error {
	if !r.endsAtDeadline(ctx) {
		return r.run(ctx, protocol.ActivityGroupLags, summary, args, lags)
	}
	asking, stop := workflow.WithCancel(ctx)
	defer stop()
	asked := start(asking, protocol.ActivityGroupLags, summary, args)
	if err := r.untilDeadline(ctx, asked.IsReady); err != nil || !asked.IsReady() {
		return err
	}
	return asked.Get(ctx, lags)
}

// behind says which group's lag grew most beyond a bound, or which has no offset any more; "" when there is none. A partition
// that is gone is nobody's any more.
func behind(before, after []protocol.PartitionLags, bound int64) (text string) {
	now := map[string]protocol.PartitionLags{}
	for _, p := range after {
		now[p.String()] = p
	}
	worst := bound
	for _, p := range before {
		then := now[p.String()]
		if p.Gone || then.Gone {
			continue
		}
		for _, was := range p.Groups {
			i := slices.IndexFunc(then.Groups, func(g protocol.GroupLag) bool { return g.Group == was.Group })
			if i < 0 && then.More {
				continue // not among those that committed last, which are all an agent tells of
			}
			if i < 0 {
				return fmt.Sprintf("group %s has no committed offset on %s any more", was.Group, p)
			}
			if lag := then.Groups[i].Lag; lag-was.Lag > worst {
				worst = lag - was.Lag
				text = fmt.Sprintf("group %s is %d records behind on %s and was %d behind before the first moves, more than %d more", was.Group, lag, p, was.Lag, bound)
			}
		}
	}
	return text
}
