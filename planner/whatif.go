package planner

import (
	"fmt"
	"slices"
	"time"
)

// After is how a snapshot goes on once a plan was made of it.
type After string

const (
	// InFlight: every action has been started and none is over.
	InFlight After = "in flight"
	// Settled: every action is over; the sources keep what they had as former copies.
	Settled After = "settled"
)

// clone copies what changes between snapshots: all but topics.
func (s *Snapshot) clone() *Snapshot {
	c := *s
	c.Brokers, c.Cooldowns = slices.Clone(s.Brokers), slices.Clone(s.Cooldowns)
	c.owner, c.target, c.version, c.flags = slices.Clone(s.owner), slices.Clone(s.target), slices.Clone(s.version), slices.Clone(s.flags)
	c.copies, c.brokerCooling = slices.Clone(s.copies), slices.Clone(s.brokerCooling)
	return &c
}

// After is the snapshot that a plan of this one leads to.
func (s *Snapshot) After(plan *Plan, how After) (*Snapshot, error) {
	c := s.clone()
	var left []copyAt // former copies that the moves leave behind
	for _, a := range plan.Actions {
		for _, l := range a.Legs {
			i, to := int32(s.Find(l.Topic, l.Partition)), s.broker(l.To)
			if i < 0 || to == none || s.Brokers[s.owner[i]].ID != l.From || s.version[i] != l.Version {
				return nil, fmt.Errorf("the plan is of another snapshot: %s/%d is not version %d on %s", l.Topic, l.Partition, l.Version, l.From)
			}
			c.version[i]++
			if how == InFlight {
				c.target[i] = to
				continue
			}
			c.Brokers[to].DiskFreeBytes -= l.Bytes
			c.owner[i] = to
			c.flags[i] |= hasCopies
			left = append(left, copyAt{i, s.owner[i], s.load[Disk][i]})
		}
	}
	if len(left) > 0 {
		// What a move adopted is no former copy any more, and of a source's only the newest counts.
		c.copies = slices.DeleteFunc(c.copies, func(x copyAt) bool { return x.broker == c.owner[x.partition] || x.broker == s.owner[x.partition] })
		c.copies = append(c.copies, left...)
	}
	c.index()
	return c, nil
}

// Cool is the snapshot with the cooldowns that autobalance puts on what a plan moves (F27).
func (s *Snapshot) Cool(plan *Plan, settings Settings) (*Snapshot, error) {
	c := s.clone()
	until := func(d time.Duration) time.Time { return s.TakenAt.Add(d) }
	for _, a := range plan.Actions {
		for _, l := range a.Legs {
			if d := time.Duration(settings.PartitionCooldown); d > 0 {
				c.Cooldowns = append(c.Cooldowns, Cooldown{Topic: l.Topic, Partition: l.Partition, Until: until(d), Reason: "moved for " + a.Goal})
			}
			if d := time.Duration(settings.BrokerCooldown); d > 0 {
				c.Cooldowns = append(c.Cooldowns, Cooldown{Broker: l.From, Until: until(d)}, Cooldown{Broker: l.To, Until: until(d)})
			}
		}
	}
	return c, c.cool()
}

// WithBroker is the snapshot with one broker more, empty.
func (s *Snapshot) WithBroker(b Broker) (*Snapshot, error) {
	if s.broker(b.ID) != none {
		return nil, fmt.Errorf("broker %q is in the snapshot already", b.ID)
	}
	check := NewBuilder(0)
	if err := check.AddBroker(b); err != nil {
		return nil, err
	}
	c := s.clone()
	at, _ := slices.BinarySearchFunc(c.Brokers, b.ID, func(x Broker, id string) int { return compare(x.ID, id) })
	c.Brokers = slices.Insert(c.Brokers, at, b)
	c.brokerCooling = slices.Insert(c.brokerCooling, at, false)
	shift := func(x *int32) {
		if *x >= int32(at) {
			*x++
		}
	}
	c.followers = slices.Clone(c.followers)
	for i := range c.owner {
		shift(&c.owner[i])
		shift(&c.target[i])
	}
	for i := range c.copies {
		shift(&c.copies[i].broker)
	}
	for i := range c.followers {
		shift(&c.followers[i].broker)
	}
	return c, nil
}

// WithBrokerDraining is the snapshot with a broker that is to give everything away.
func (s *Snapshot) WithBrokerDraining(id string) (*Snapshot, error) {
	at := s.broker(id)
	if at == none {
		return nil, fmt.Errorf("there is no broker %q in the snapshot", id)
	}
	c := s.clone()
	c.Brokers[at].Draining = true
	return c, nil
}
