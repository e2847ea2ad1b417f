// Package fleetview makes the planner's snapshot of a live fleet: one consistent read of the metastore's primary, and for
// what only agents know, whether they answer, what is free on their disks and which former copies they keep, one question
// to each. An agent that does not answer is dead for this snapshot; the planner then neither moves to nor counts at it.
package fleetview

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"portage/brokeragent/control"
	"portage/metastore"
	"portage/planner"
)

const (
	// answersWithin is how long an agent may take to say that it is there.
	answersWithin = 2 * time.Second
	// askedAtOnce bounds the agents that are asked at a time.
	askedAtOnce = 64
	// EachSample is the time between two samples of the loads.
	EachSample = time.Minute
	// KeptSamples are kept: what the default window needs, and some more.
	KeptSamples = 128
)

// Settings are the planner's settings of the fleet, with what differs for this once over them; overrides may be nil.
func Settings(ctx context.Context, store *metastore.Store, overrides json.RawMessage) (planner.Settings, error) {
	all, err := store.Settings(ctx)
	if err != nil {
		return planner.Settings{}, err
	}
	settings := planner.DefaultSettings()
	for _, s := range all {
		if s.Key != metastore.SettingPlanner {
			continue
		}
		if settings, err = planner.ParseSettings([]byte(s.Value)); err != nil {
			return settings, fmt.Errorf("the fleet's setting %s: %w; correct it with `portage config set`: %w", s.Key, err, ErrInvalid)
		}
	}
	if len(overrides) == 0 {
		return settings, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(overrides))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&settings); err != nil {
		return settings, fmt.Errorf("the settings can not be read: %w: %w", err, ErrInvalid)
	}
	if err := settings.Validate(); err != nil {
		return settings, fmt.Errorf("%w: %w", err, ErrInvalid)
	}
	return settings, nil
}

// ErrInvalid marks settings that are none, as opposed to a metastore that does not answer.
var ErrInvalid = errors.New("invalid settings")

// Read makes a snapshot of the fleet as it is now.
func Read(ctx context.Context, store *metastore.Store, agents *control.Client, settings planner.Settings) (*planner.Snapshot, error) {
	return ReadFor(ctx, store, agents, settings, "")
}

// ReadFor is Read for the next plan of a rebalance: the brokers that it has moved something from or to itself do not cool down for it.
// What it has moved does, so that it moves nothing twice.
func ReadFor(ctx context.Context, store *metastore.Store, agents *control.Client, settings planner.Settings, rebalance string) (*planner.Snapshot, error) {
	windows, err := loads(ctx, store, settings)
	if err != nil {
		return nil, err
	}
	fleet, err := store.ReadFleet(ctx)
	if err != nil {
		return nil, err
	}
	fleet.Cooldowns = cooling(fleet.Cooldowns, settings, rebalance)
	return build(fleet, ask(ctx, fleet, agents), windows)
}

// cooling are the cooldowns that count for a plan with these settings, which may have been switched off since.
func cooling(all []metastore.Cooldown, settings planner.Settings, rebalance string) []metastore.Cooldown {
	return slices.DeleteFunc(all, func(c metastore.Cooldown) bool {
		if strings.HasPrefix(c.Subject, "broker/") {
			return settings.BrokerCooldown == 0 || (rebalance != "" && c.Rebalance == rebalance)
		}
		return settings.PartitionCooldown == 0
	})
}

// loads feeds the samples that the metastore keeps into windows.
func loads(ctx context.Context, store *metastore.Store, settings planner.Settings) (*planner.Windows, error) {
	windows, err := planner.NewWindows(settings)
	if err != nil {
		return nil, err
	}
	err = store.LoadSamples(ctx, settings.Window+1, func(pass metastore.LoadPass) error {
		for _, l := range pass.Samples {
			if l.Process == uuid.Nil {
				windows.Keep(key(l.TopicID, l.Partition))
				continue
			}
			report := planner.Report{Key: key(l.TopicID, l.Partition), Process: l.Process, At: l.At, Disk: l.Disk, Produced: l.Produced, Consumed: l.Consumed}
			if err := windows.Feed(report); err != nil {
				return err
			}
		}
		windows.EndPass()
		return nil
	})
	return windows, err
}

func key(topic uuid.UUID, partition int32) planner.PartitionKey {
	return planner.PartitionKey{Topic: topic, Partition: partition}
}

// answer is what one agent said; nil: nothing.
type answer struct {
	status *control.AgentStatus
	copies []control.RetainedCopy
}

// ask asks every agent once.
func ask(ctx context.Context, fleet *metastore.FleetView, agents *control.Client) map[string]answer {
	answers := map[string]answer{}
	var mu sync.Mutex // guards answers
	var asked sync.WaitGroup
	slots := make(chan struct{}, askedAtOnce)
	for _, b := range fleet.Brokers {
		if b.Removed {
			continue
		}
		asked.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; asked.Done() }()
			within, cancel := context.WithTimeout(ctx, answersWithin)
			defer cancel()
			status, err := agents.Status(within, b.ControlURL)
			if err != nil && control.CodeOf(err) == "" {
				status, err = agents.Status(within, b.ControlURL) // one lost answer is not silence
			}
			if err != nil || status.Process != b.ProcessInstance {
				return // nobody, or a process that is not the registered one
			}
			a := answer{status: &status}
			if kept, err := agents.Retained(within, b.ControlURL); err == nil { // only makes moves cheaper
				a.copies = kept.Copies
			}
			mu.Lock()
			defer mu.Unlock()
			answers[b.ID] = a
		}()
	}
	asked.Wait()
	return answers
}

func build(fleet *metastore.FleetView, answers map[string]answer, windows *planner.Windows) (*planner.Snapshot, error) {
	b := planner.NewBuilder(len(fleet.Assignments))
	b.FleetID, b.TakenAt = fleet.FleetID.String(), fleet.At
	named := map[string]bool{} // removed brokers are part of it only while something names them
	for _, a := range fleet.Assignments {
		named[a.Owner] = true
		if a.Target != nil {
			named[*a.Target] = true
		}
	}
	known := map[string]bool{}
	for _, broker := range fleet.Brokers {
		if broker.Removed && !named[broker.ID] {
			continue
		}
		known[broker.ID] = true
		if err := b.AddBroker(brokerOf(broker, answers[broker.ID], fleet.Capacities[broker.ID])); err != nil {
			return nil, err
		}
	}
	topics := map[uuid.UUID]string{}
	for _, t := range fleet.Topics {
		topics[t.ID] = t.Name
		if err := b.AddTopic(planner.Topic{Name: t.Name, ID: t.ID.String(), Internal: t.Internal, Config: t.Config}); err != nil {
			return nil, err
		}
	}
	followers, copies := map[metastore.PartitionID][]string{}, map[metastore.PartitionID][]planner.Copy{}
	for _, r := range fleet.Replicas {
		if id := (metastore.PartitionID{TopicID: r.TopicID, Partition: r.Partition}); r.Role != "owner" && known[r.Broker] {
			followers[id] = append(followers[id], r.Broker)
		}
	}
	for broker, a := range answers {
		for _, c := range a.copies {
			if id := (metastore.PartitionID{TopicID: c.TopicID, Partition: c.Partition}); !c.Quarantined && !c.Hold && known[broker] {
				copies[id] = append(copies[id], planner.Copy{Broker: broker, Bytes: c.Bytes})
			}
		}
	}
	for i := range fleet.Assignments {
		a := &fleet.Assignments[i]
		id := metastore.PartitionID{TopicID: a.TopicID, Partition: a.Partition}
		p := planner.Partition{Topic: a.Topic, Partition: a.Partition, Owner: a.Owner, Version: a.Version, Followers: followers[id], Copies: others(copies[id], a.Owner)}
		if a.Target != nil {
			p.Target = *a.Target
		}
		if a.PendingRecovery != nil {
			b.Recoveries++
		}
		loads := windows.Loads(key(a.TopicID, a.Partition))
		p.In, p.Out, p.Disk = loads.In, loads.Out, loads.Disk
		if loads.Samples == 0 {
			p.Disk = fleet.Disk[id] // what must be copied is known before any rate is
		}
		if !loads.Trusted {
			p.Untrusted = []planner.Goal{planner.NWIn, planner.NWOut, planner.Disk}
		}
		if err := b.Add(p); err != nil {
			return nil, err
		}
	}
	for _, c := range fleet.Cooldowns {
		if cooldown, ok := cooldownOf(c, topics); ok {
			b.AddCooldown(cooldown)
		}
	}
	return b.Build()
}

func brokerOf(b metastore.Broker, a answer, set metastore.Capacity) planner.Broker {
	p := planner.Broker{ID: b.ID, Rack: b.Rack, Alive: a.status != nil && !b.Removed, Draining: b.Draining || b.Removed,
		DiskBytes: b.DiskTotalBytes, DiskFreeBytes: b.DiskFreeBytes, NetBytesPerSec: set.NetBytesPerSec, Weight: set.Weight}
	if a.status != nil {
		p.DiskBytes, p.DiskFreeBytes = a.status.DiskTotalBytes, a.status.DiskFreeBytes
	}
	if set.DiskBytes > 0 && set.DiskBytes < p.DiskBytes { // an operator lets it use less than there is
		p.DiskFreeBytes = max(0, p.DiskFreeBytes-(p.DiskBytes-set.DiskBytes))
		p.DiskBytes = set.DiskBytes
	}
	return p
}

// others are the former copies at other brokers than the owner, the largest of each.
func others(copies []planner.Copy, owner string) (kept []planner.Copy) {
	at := map[string]int{}
	for _, c := range copies {
		if c.Broker == owner {
			continue
		}
		if i, twice := at[c.Broker]; twice {
			kept[i].Bytes = max(kept[i].Bytes, c.Bytes)
			continue
		}
		at[c.Broker] = len(kept)
		kept = append(kept, c)
	}
	return kept
}

// cooldownOf reads a subject; one of a topic that is gone is none.
func cooldownOf(c metastore.Cooldown, topics map[uuid.UUID]string) (planner.Cooldown, bool) {
	out := planner.Cooldown{Until: c.Until, Reason: c.Reason}
	if broker, ok := strings.CutPrefix(c.Subject, "broker/"); ok {
		out.Broker = broker
		return out, true
	}
	topic, number, err := partitionOf(c.Subject)
	out.Topic, out.Partition = topics[topic], number
	return out, err == nil && out.Topic != ""
}

func partitionOf(subject string) (topic uuid.UUID, number int32, err error) {
	parts := strings.Split(subject, "/")
	if len(parts) != 3 || parts[0] != "partition" {
		return topic, 0, fmt.Errorf("%q is no partition", subject)
	}
	if topic, err = uuid.Parse(parts[1]); err != nil {
		return topic, 0, err
	}
	n, err := strconv.ParseInt(parts[2], 10, 32)
	return topic, int32(n), err
}
