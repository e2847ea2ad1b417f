package activities

import (
	"context"
	"fmt"

	"portage/internal/fleetview"
	"portage/metastore"
	"portage/planner"
	"portage/workflows/protocol"
)

// CheckDecommission looks at every guard of a decommission at once, and plans what would leave. It changes nothing.
func (p *Plans) CheckDecommission(ctx context.Context, args protocol.DrainArgs) (protocol.DrainCheck, error) {
	return patientPlan(ctx, p, func(ctx context.Context) (protocol.DrainCheck, error) { return p.Check(ctx, args) })
}

// Check is CheckDecommission once.
func (p *Plans) Check(ctx context.Context, args protocol.DrainArgs) (protocol.DrainCheck, error) {
	var check protocol.DrainCheck
	fleet, err := p.Store.ReadFleet(ctx)
	if err != nil {
		return check, err
	}
	refuse := func(code, format string, a ...any) {
		check.Refused = append(check.Refused, planner.Objection{Code: code, Reason: fmt.Sprintf(format, a...)})
	}
	var broker *metastore.Broker
	stay := 0
	for i, b := range fleet.Brokers {
		switch {
		case b.ID == args.Broker:
			broker = &fleet.Brokers[i]
		case !b.Removed && !b.Draining:
			stay++
		}
	}
	if broker == nil {
		refuse(metastore.CodeUnknownBroker, "there is no broker %q; `portage cluster members` lists them", args.Broker)
		return check, nil
	}
	check.Draining, check.Removed = broker.Draining, broker.Removed
	for _, a := range fleet.Assignments {
		if a.Owner == args.Broker {
			check.Owned++
		}
		if a.Target != nil && *a.Target == args.Broker {
			check.Inbound++
		}
	}
	if check.Removed {
		return check, nil
	}
	if stay < args.MinBrokers {
		refuse(metastore.CodeTooFewBrokers, "%d brokers would stay that take partitions, at least %d must: add one, or say --min-brokers", stay, args.MinBrokers)
	}
	if n := p.quarantined(ctx, broker); n > 0 {
		refuse(metastore.CodeQuarantined, "broker %q has %d copies in quarantine, whose records are nowhere else: `portage quarantine list` and export or purge them", args.Broker, n)
	}
	replicas := 0
	for _, r := range fleet.Replicas {
		if r.Broker == args.Broker {
			replicas++
		}
	}
	if replicas > 0 {
		refuse(metastore.CodeBrokerInUse, "broker %q holds %d replicas: move them away first", args.Broker, replicas)
	}
	return check, p.planDrain(ctx, args, &check)
}

// quarantined asks the broker itself, and takes what it last reported when it does not answer.
func (p *Plans) quarantined(ctx context.Context, b *metastore.Broker) int {
	within, cancel := context.WithTimeout(ctx, aliveWithin)
	defer cancel()
	if status, err := p.Agents.Status(within, b.ControlURL); err == nil {
		return status.Quarantined
	}
	return int(b.QuarantinedCopies)
}

// planDrain plans as if the broker were draining, together with those that are.
func (p *Plans) planDrain(ctx context.Context, args protocol.DrainArgs, check *protocol.DrainCheck) error {
	settings, _, err := p.settingsOf(ctx, protocol.PlanArgs{})
	if err != nil {
		return err
	}
	snapshot, err := fleetview.Read(ctx, p.Store, p.Agents, settings)
	if err != nil {
		return err
	}
	if snapshot, err = snapshot.WithBrokerDraining(args.Broker); err != nil {
		return err
	}
	plan, err := planner.MakeDrain(snapshot, settings, "")
	if err != nil {
		return err
	}
	for _, a := range plan.Actions {
		if a.Legs[0].From != args.Broker {
			continue
		}
		check.Moves++
		check.Bytes += a.Legs[0].Bytes
		if len(check.Text) < protocol.MostShown {
			check.Text = append(check.Text, Line(a))
		}
	}
	if plan.ETA != nil {
		check.ETA = *plan.ETA
	}
	if plan.Held != nil {
		check.Waits = append(check.Waits, planner.Blocked{Owner: args.Broker, Objection: *plan.Held})
	}
	noRoom := 0
	for _, b := range plan.Blocked {
		if b.Owner != args.Broker {
			continue
		}
		if b.Code == planner.CodeTooLittleRoom {
			noRoom++
		}
		if len(check.Waits) < protocol.MostShown {
			check.Waits = append(check.Waits, b)
		}
	}
	check.Waits = append(check.Waits, silent(snapshot, args.Broker, check.Waits)...)
	// Room is a guard before the drain. Once it drains, the moves make room themselves, or it is waited for.
	if noRoom > 0 && !check.Draining {
		check.Refused = append(check.Refused, planner.Objection{Code: metastore.CodeTooLittleRoom,
			Reason: fmt.Sprintf("the other brokers have no room for %d of its partitions beside what is on its way to them: free space, or add a broker", noRoom)})
	}
	return nil
}

// silent are partitions of a broker that does not answer: nothing can leave it, and nobody else has them.
func silent(s *planner.Snapshot, broker string, already []planner.Blocked) (waits []planner.Blocked) {
	for _, b := range s.Brokers {
		if b.ID == broker && b.Alive {
			return nil
		}
	}
	for i := 0; i < s.Len() && len(already)+len(waits) < protocol.MostShown; i++ {
		if part := s.Partition(i); part.Owner == broker && part.Target == "" && len(already) == 0 {
			waits = append(waits, planner.Blocked{Topic: part.Topic, Partition: part.Partition, Owner: broker, Objection: planner.Objection{Code: planner.CodeBrokerDead,
				Reason: fmt.Sprintf("%s does not answer and alone has it; start its agent, or give the partition to a copy with `portage promote`", broker)}})
		}
	}
	return waits
}

// BeginDrain marks the broker; see metastore.BeginDrain for who dies when.
func (p *Plans) BeginDrain(ctx context.Context, args protocol.DrainArgs) error {
	_, err := patientPlan(ctx, p, func(ctx context.Context) (struct{}, error) {
		settings, err := p.settings(ctx, nil)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, p.Store.BeginDrain(ctx, metastore.DrainRequest{Broker: args.Broker, MinBrokers: args.MinBrokers, RoomMargin: settings.RoomMargin, By: args.By, Reason: args.Reason})
	})
	return err
}

// CancelDrain clears the mark. A broker that was removed meanwhile stays removed, and that is said.
func (p *Plans) CancelDrain(ctx context.Context, args protocol.DrainArgs) (protocol.RemoveResult, error) {
	return patientPlan(ctx, p, func(ctx context.Context) (protocol.RemoveResult, error) {
		return orObjection(p.Store.SetDraining(ctx, args.Broker, false, args.By, "decommission cancelled: "+args.Reason))
	})
}

// RemoveBroker takes the broker out of the fleet, or says what stands against it now: the workflow shows that and goes on.
func (p *Plans) RemoveBroker(ctx context.Context, args protocol.DrainArgs) (protocol.RemoveResult, error) {
	return patientPlan(ctx, p, func(ctx context.Context) (protocol.RemoveResult, error) {
		return orObjection(p.Store.RemoveBroker(ctx, metastore.RemoveRequest{Broker: args.Broker, MinBrokers: args.MinBrokers, By: args.By, Reason: args.Reason}))
	})
}

func orObjection(err error) (protocol.RemoveResult, error) {
	if refused, ok := metastore.RefusedWith(err); ok {
		return protocol.RemoveResult{Refused: &planner.Objection{Code: refused.Code, Reason: refused.Reason}}, nil
	}
	return protocol.RemoveResult{}, err
}
