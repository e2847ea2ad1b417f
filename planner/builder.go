package planner

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Builder collects what a snapshot is made of, in any order; brokers and topics before what names them.
type Builder struct {
	FleetID    string
	TakenAt    time.Time
	Recoveries int

	brokers    []Broker
	topics     []Topic
	cooldowns  []Cooldown
	brokerAt   map[string]int32
	topicAt    map[string]int32
	partitions []row
	copies     []copyAt // partition is the row's number
	followers  []followerAt
}

// row is a partition as it was added; indexes are those of the order of adding.
type row struct {
	topic, number, owner, target int32
	version                      int64
	load                         [numResources]int64
	flags                        partitionFlags
	added                        int32
}

// NewBuilder begins a snapshot with room for a number of partitions.
func NewBuilder(partitions int) *Builder {
	return &Builder{brokerAt: map[string]int32{}, topicAt: map[string]int32{}, partitions: make([]row, 0, partitions)}
}

// AddBroker adds a broker.
func (b *Builder) AddBroker(broker Broker) error {
	switch _, twice := b.brokerAt[broker.ID]; {
	case broker.ID == "":
		return errors.New("a broker has no id")
	case twice:
		return fmt.Errorf("broker %q is there twice", broker.ID)
	case broker.Weight < 0 || math.IsNaN(broker.Weight) || math.IsInf(broker.Weight, 0):
		return fmt.Errorf("broker %q has the weight %v; it is above 0, and a broker that is to take nothing is drained", broker.ID, broker.Weight)
	case broker.DiskBytes < 0 || broker.NetBytesPerSec < 0:
		return fmt.Errorf("broker %q has a negative capacity", broker.ID)
	}
	b.brokerAt[broker.ID] = int32(len(b.brokers))
	b.brokers = append(b.brokers, broker)
	return nil
}

// AddTopic adds a topic. One whose name starts with "__" is internal (M3).
func (b *Builder) AddTopic(topic Topic) error {
	if _, twice := b.topicAt[topic.Name]; topic.Name == "" || twice {
		return fmt.Errorf("topic %q has no name or is there twice", topic.Name)
	}
	topic.Internal = topic.Internal || strings.HasPrefix(topic.Name, "__")
	b.topicAt[topic.Name] = int32(len(b.topics))
	b.topics = append(b.topics, topic)
	return nil
}

// Add adds a partition.
func (b *Builder) Add(p Partition) error {
	fault := func(format string, args ...any) error {
		return fmt.Errorf("partition %s/%d: %s", p.Topic, p.Partition, fmt.Sprintf(format, args...))
	}
	topic, ok := b.topicAt[p.Topic]
	if !ok {
		return fault("its topic is not in the snapshot")
	}
	if p.Partition < 0 || p.In < 0 || p.Out < 0 || p.Disk < 0 {
		return fault("a figure is negative")
	}
	if len(b.partitions) == math.MaxInt32 {
		return fault("a snapshot holds at most %d partitions", math.MaxInt32)
	}
	r := row{topic: topic, number: p.Partition, target: none, version: p.Version, load: [numResources]int64{p.In, p.Out, p.Disk}, added: int32(len(b.partitions))}
	var err error
	broker := func(id string) int32 {
		at, ok := b.brokerAt[id]
		if !ok {
			err = fault("broker %q is not in the snapshot", id)
		}
		return at
	}
	r.owner = broker(p.Owner)
	if p.Target != "" {
		r.target = broker(p.Target)
	}
	for _, g := range p.Untrusted {
		if g >= numResources {
			return fault("%s is always trusted", g)
		}
		r.flags |= untrustedIn << g
	}
	for _, c := range p.Copies {
		r.flags |= hasCopies
		b.copies = append(b.copies, copyAt{r.added, broker(c.Broker), max(0, c.Bytes)})
	}
	for _, f := range p.Followers {
		r.flags |= replicated
		b.followers = append(b.followers, followerAt{r.added, broker(f)})
	}
	if err == nil {
		b.partitions = append(b.partitions, r)
	}
	return err
}

// AddCooldown adds a cooldown; one that is over at TakenAt has no effect.
func (b *Builder) AddCooldown(c Cooldown) { b.cooldowns = append(b.cooldowns, c) }

// Build orders everything and makes the snapshot. The builder is used up.
func (b *Builder) Build() (*Snapshot, error) {
	s := &Snapshot{FleetID: b.FleetID, TakenAt: b.TakenAt, Recoveries: b.Recoveries}
	var brokerTo, topicTo []int32
	s.Brokers, brokerTo = ordered(b.brokers, func(x Broker) string { return x.ID })
	s.Topics, topicTo = ordered(b.topics, func(x Topic) string { return x.Name })
	for i := range b.partitions {
		r := &b.partitions[i]
		r.topic, r.owner = topicTo[r.topic], brokerTo[r.owner]
		if r.target != none {
			r.target = brokerTo[r.target]
		}
	}
	byName := func(x, y row) int {
		return cmp.Or(cmp.Compare(x.topic, y.topic), cmp.Compare(x.number, y.number))
	}
	if !slices.IsSortedFunc(b.partitions, byName) {
		slices.SortFunc(b.partitions, byName)
	}
	n := len(b.partitions)
	s.topic, s.number, s.owner, s.target = make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, n)
	s.version, s.flags = make([]int64, n), make([]partitionFlags, n)
	for g := range s.load {
		s.load[g] = make([]int64, n)
	}
	var movedTo []int32 // where the rows of copies and followers went
	if len(b.copies)+len(b.followers) > 0 {
		movedTo = make([]int32, n)
	}
	for i, r := range b.partitions {
		if i > 0 && byName(b.partitions[i-1], r) == 0 {
			return nil, fmt.Errorf("partition %s/%d is there twice", s.Topics[r.topic].Name, r.number)
		}
		s.topic[i], s.number[i], s.owner[i], s.target[i], s.version[i], s.flags[i] = r.topic, r.number, r.owner, r.target, r.version, r.flags
		for g, load := range r.load {
			s.load[g][i] = load
		}
		if s.Topics[r.topic].Internal {
			s.flags[i] |= internal
		}
		if movedTo != nil {
			movedTo[r.added] = int32(i)
		}
	}
	b.partitions = nil
	s.copies, s.followers = b.copies, b.followers
	for i := range s.copies {
		s.copies[i].partition, s.copies[i].broker = movedTo[s.copies[i].partition], brokerTo[s.copies[i].broker]
	}
	for i := range s.followers {
		s.followers[i].partition, s.followers[i].broker = movedTo[s.followers[i].partition], brokerTo[s.followers[i].broker]
	}
	s.index()
	s.Cooldowns = b.cooldowns
	return s, s.cool()
}

// index makes what is derived from partitions and topics.
func (s *Snapshot) index() {
	slices.SortFunc(s.copies, func(x, y copyAt) int {
		return cmp.Or(cmp.Compare(x.partition, y.partition), cmp.Compare(x.broker, y.broker))
	})
	slices.SortFunc(s.followers, func(x, y followerAt) int {
		return cmp.Or(cmp.Compare(x.partition, y.partition), cmp.Compare(x.broker, y.broker))
	})
	s.firstOf = make([]int32, len(s.Topics)+1)
	for _, t := range s.topic {
		s.firstOf[t+1]++
	}
	for t := range s.Topics {
		s.firstOf[t+1] += s.firstOf[t]
	}
	s.parent = make([]int32, len(s.Topics))
	byName := map[string]int32{}
	for t := range s.Topics {
		byName[s.Topics[t].Name] = int32(t)
	}
	for t := range s.Topics {
		s.parent[t] = none
		if parent, ok := byName[s.Topics[t].Config[AntiAffinityConfig]]; ok && parent != int32(t) {
			s.parent[t] = parent
		}
	}
}

// cool marks what is cooling at TakenAt.
func (s *Snapshot) cool() error {
	s.brokerCooling = make([]bool, len(s.Brokers))
	slices.SortFunc(s.Cooldowns, func(x, y Cooldown) int {
		return cmp.Or(cmp.Compare(x.Broker, y.Broker), cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition), x.Until.Compare(y.Until))
	})
	for _, c := range s.Cooldowns {
		if !c.Until.After(s.TakenAt) {
			continue
		}
		switch {
		case c.Broker != "" && c.Topic != "":
			return fmt.Errorf("a cooldown names both the broker %q and the topic %q", c.Broker, c.Topic)
		case c.Broker != "":
			if b := s.broker(c.Broker); b != none {
				s.brokerCooling[b] = true
			}
		default:
			if p := s.Find(c.Topic, c.Partition); p >= 0 {
				s.flags[p] |= cooling
			}
		}
	}
	return nil
}

// ordered sorts by a key and says where each element went.
func ordered[T any](all []T, key func(T) string) (sorted []T, to []int32) {
	order := make([]int32, len(all))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(x, y int32) int { return compare(key(all[x]), key(all[y])) })
	sorted, to = make([]T, len(all)), make([]int32, len(all))
	for i, from := range order {
		sorted[i], to[from] = all[from], int32(i)
	}
	return sorted, to
}
