package operate

import (
	"context"

	"portage/internal/fleetview"
	"portage/metastore"
	"portage/planner"
	"portage/workflows/protocol"
)

// Member is one broker of the fleet with what it owns.
type Member struct {
	metastore.Broker
	Owned    int `json:"ownedPartitions"`
	Outbound int `json:"outboundMoves"`
	Inbound  int `json:"inboundMoves"`
}

// Members lists the fleet's brokers, without those that were removed.
func (f *Fleet) Members(ctx context.Context) ([]Member, error) {
	snapshot, err := f.Store.ReadSnapshot(ctx)
	if err != nil {
		return nil, ofStore(err)
	}
	return MembersOf(snapshot), nil
}

// MembersOf counts what each broker owns, gives and takes.
func MembersOf(s *metastore.Snapshot) []Member {
	index := map[string]int{}
	members := []Member{}
	for _, b := range s.Brokers {
		if !b.Removed {
			index[b.ID] = len(members)
			members = append(members, Member{Broker: b})
		}
	}
	for _, a := range s.Assignments {
		if i, ok := index[a.Owner]; ok {
			members[i].Owned++
			if a.Target != nil {
				members[i].Outbound++
			}
		}
		if a.Target != nil {
			if i, ok := index[*a.Target]; ok {
				members[i].Inbound++
			}
		}
	}
	return members
}

// Moves lists moves in progress, or with all the last ones of every outcome.
func (f *Fleet) Moves(ctx context.Context, all bool, limit int) ([]metastore.Move, error) {
	moves, err := f.Store.Moves(ctx, all, limit)
	if moves == nil {
		moves = []metastore.Move{}
	}
	return moves, ofStore(err)
}

// Score is how loaded one broker is, part by part; 1 is the fleet's average.
type Score struct {
	Broker string `json:"broker"`
	State  string `json:"state"` // in service, draining, or dead: nothing of it counts
	planner.BrokerScore
}

// Scores asks every agent and scores the fleet.
func (f *Fleet) Scores(ctx context.Context) ([]Score, error) {
	settings, err := fleetview.Settings(ctx, f.Store, nil)
	if err != nil {
		return nil, ofPlanning(err)
	}
	snapshot, err := fleetview.Read(ctx, f.Store, f.Agents, settings)
	if err != nil {
		return nil, ofPlanning(err)
	}
	scores := []Score{}
	for i, s := range planner.Scores(snapshot, settings) {
		scores = append(scores, Score{snapshot.Brokers[i].ID, snapshot.Brokers[i].State(), s})
	}
	return scores, nil
}

// SetPaused holds every rebalance of the fleet, or lets them go on.
func (f *Fleet) SetPaused(ctx context.Context, paused bool, by, reason string) error {
	if err := Said(by, reason); err != nil {
		return err
	}
	value := "false"
	if paused {
		value = "true"
	}
	_, err := f.Store.SetSetting(ctx, metastore.SettingPaused, value, by, reason)
	return ofStore(err)
}

// Record puts an order into the audit, with who gave it and why, before it is carried out.
func (f *Fleet) Record(ctx context.Context, o metastore.Order) error {
	return ofStore(f.Store.RecordOrder(ctx, o))
}

// Paused says whether the fleet's rebalances are held, by whom and why.
func (f *Fleet) Paused(ctx context.Context) (protocol.Pause, error) {
	p, err := f.Store.Paused(ctx)
	return protocol.Pause{Paused: p.Paused, By: p.By, Reason: p.Reason}, ofStore(err)
}

// Drain lets a broker take no more partitions, or takes that back.
func (f *Fleet) Drain(ctx context.Context, broker string, draining bool, by, reason string) error {
	if err := Said(by, reason); err != nil {
		return err
	}
	return ofStore(f.Store.SetDraining(ctx, broker, draining, by, reason))
}

// SetCapacity sets what plans take into account of a broker, and gives what is in force then.
func (f *Fleet) SetCapacity(ctx context.Context, change metastore.CapacityChange) (metastore.Capacity, error) {
	if err := Said(change.By, change.Reason); err != nil {
		return metastore.Capacity{}, err
	}
	set, err := f.Store.SetCapacity(ctx, change)
	return set, ofStore(err)
}

// RemoveBroker takes an empty, draining broker out of the fleet.
func (f *Fleet) RemoveBroker(ctx context.Context, r metastore.RemoveRequest) error {
	if err := Said(r.By, r.Reason); err != nil {
		return err
	}
	return ofStore(f.Store.RemoveBroker(ctx, r))
}
