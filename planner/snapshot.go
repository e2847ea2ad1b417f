package planner

import (
	"sort"
	"time"
)

// Broker is one broker of a snapshot.
type Broker struct {
	ID       string `json:"id"`
	Rack     string `json:"rack,omitempty"`
	Alive    bool   `json:"alive"`
	Draining bool   `json:"draining,omitempty"`
	// DiskBytes is the disk's size; 0: not known, and room is not looked at. DiskFreeBytes is what is free now.
	DiskBytes     int64 `json:"diskBytes,omitempty"`
	DiskFreeBytes int64 `json:"diskFreeBytes,omitempty"`
	// NetBytesPerSec is what the broker's network carries in one direction; 0: not known.
	NetBytesPerSec int64 `json:"netBytesPerSec,omitempty"`
	// Weight multiplies the broker's share of everything; 0 is 1. A broker that is to take nothing is drained.
	Weight float64 `json:"weight,omitempty"`
}

// State is in service, draining, or dead: its agent does not answer.
func (b *Broker) State() string {
	switch {
	case !b.Alive:
		return "dead"
	case b.Draining:
		return "draining"
	}
	return "in service"
}

func (b *Broker) weight() float64 {
	if b.Weight == 0 {
		return 1
	}
	return b.Weight
}

// receives reports whether the broker may be given partitions at all.
func (b *Broker) receives() bool { return b.Alive && !b.Draining }

// AntiAffinityConfig is the topic config that names another topic: partition i of this one is rather not on the broker
// that has partition i of the other. A preference: balance wins.
const AntiAffinityConfig = "anti-affinity.topic"

// Topic is one topic of a snapshot.
type Topic struct {
	Name     string            `json:"name"`
	ID       string            `json:"id,omitempty"`
	Internal bool              `json:"internal,omitempty"`
	Config   map[string]string `json:"config,omitempty"`
}

// Partition is one partition as it goes into a snapshot and comes out of it.
type Partition struct {
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Owner     string   `json:"owner"`
	Target    string   `json:"target,omitempty"` // where a move in progress takes it
	Version   int64    `json:"version"`          // of its row
	Followers []string `json:"followers,omitempty"`
	Copies    []Copy   `json:"copies,omitempty"` // former copies that a move there could adopt
	// Loads: bytes a second, bytes a second, bytes.
	In   int64 `json:"in"`
	Out  int64 `json:"out"`
	Disk int64 `json:"disk"`
	// Untrusted names the loads that are not trusted: NW_IN, NW_OUT, DISK.
	Untrusted []Goal `json:"untrusted,omitempty"`
}

// Copy is a retained copy of a partition at a broker.
type Copy struct {
	Broker string `json:"broker"`
	Bytes  int64  `json:"bytes"` // of the partition's that need not be copied again
}

// Cooldown is a broker, or a partition, that was moved lately and is left alone until a moment.
type Cooldown struct {
	Broker    string    `json:"broker,omitempty"`
	Topic     string    `json:"topic,omitempty"`
	Partition int32     `json:"partition,omitempty"`
	Until     time.Time `json:"until"`
	Reason    string    `json:"reason,omitempty"`
}

// Snapshot is one consistent read of a fleet. It does not change once it is built; a Builder makes one, What changes it
// into another. Its partitions lie in columns, about 60 bytes each, ordered by topic and number.
type Snapshot struct {
	FleetID string
	TakenAt time.Time
	Brokers []Broker // by id
	Topics  []Topic  // by name
	// Recoveries is how many partitions wait for the recovery of their owner. While there are any nothing is balanced.
	Recoveries int
	Cooldowns  []Cooldown

	topic, number, owner, target []int32 // indexes of Topics and Brokers; none: -1
	version                      []int64
	load                         [numResources][]int64
	flags                        []partitionFlags
	copies                       []copyAt     // by partition, then broker
	followers                    []followerAt // likewise
	brokerCooling                []bool       // at TakenAt
	parent                       []int32      // of each topic, the topic it keeps away from; none: -1
	firstOf                      []int32      // of each topic, where its partitions begin; one more than topics
}

type partitionFlags uint8

const (
	untrustedIn partitionFlags = 1 << iota // untrustedIn << goal is that goal's
	untrustedOut
	untrustedDisk
	cooling
	hasCopies
	replicated
	internal
)

func (f partitionFlags) trusts(g Goal) bool { return g == PartitionCount || f&(untrustedIn<<g) == 0 }

const none = int32(-1)

type copyAt struct {
	partition, broker int32
	bytes             int64
}

type followerAt struct{ partition, broker int32 }

// Len is how many partitions there are.
func (s *Snapshot) Len() int { return len(s.topic) }

// Partition is the i-th partition in the order of topic name and number.
func (s *Snapshot) Partition(i int) Partition {
	p := Partition{Topic: s.Topics[s.topic[i]].Name, Partition: s.number[i], Owner: s.Brokers[s.owner[i]].ID, Version: s.version[i],
		In: s.load[NWIn][i], Out: s.load[NWOut][i], Disk: s.load[Disk][i]}
	if s.target[i] != none {
		p.Target = s.Brokers[s.target[i]].ID
	}
	for g := range Goal(numResources) {
		if !s.flags[i].trusts(g) {
			p.Untrusted = append(p.Untrusted, g)
		}
	}
	for _, c := range s.copiesOf(int32(i)) {
		p.Copies = append(p.Copies, Copy{Broker: s.Brokers[c.broker].ID, Bytes: c.bytes})
	}
	for _, f := range s.followersOf(int32(i)) {
		p.Followers = append(p.Followers, s.Brokers[f.broker].ID)
	}
	return p
}

// Untrusted reports whether no partition's load of a goal is trusted, though there are partitions.
func (s *Snapshot) Untrusted(g Goal) bool {
	for _, f := range s.flags {
		if f.trusts(g) {
			return false
		}
	}
	return s.Len() > 0
}

// Find is the index of a partition; -1 when it is not there.
func (s *Snapshot) Find(topic string, number int32) int {
	t, ok := sort.Find(len(s.Topics), func(i int) int { return compare(topic, s.Topics[i].Name) })
	if !ok {
		return -1
	}
	return int(s.at(int32(t), number))
}

// at is the index of a topic's partition; none when it is not there.
func (s *Snapshot) at(topic, number int32) int32 {
	first, end := s.firstOf[topic], s.firstOf[topic+1]
	// A topic's numbers run from 0 without gaps unless its snapshot is partial.
	if i := first + number; i < end && s.number[i] == number {
		return i
	}
	i := first + int32(sort.Search(int(end-first), func(i int) bool { return s.number[first+int32(i)] >= number }))
	if i < end && s.number[i] == number {
		return i
	}
	return none
}

// broker is the index of a broker by its id; none when it is not there.
func (s *Snapshot) broker(id string) int32 {
	i, ok := sort.Find(len(s.Brokers), func(i int) int { return compare(id, s.Brokers[i].ID) })
	if !ok {
		return none
	}
	return int32(i)
}

// countedAt is the broker a partition counts at: where it is going, else where it is (N21).
func (s *Snapshot) countedAt(i int32) int32 {
	if s.target[i] != none {
		return s.target[i]
	}
	return s.owner[i]
}

// counts reports whether a partition is part of the balance: internal topics are not (M3), nor what is at a broker that
// does not answer (M34, N21).
func (s *Snapshot) counts(i int32) bool {
	return s.flags[i]&internal == 0 && s.Brokers[s.countedAt(i)].Alive
}

func (s *Snapshot) loadOf(g Goal, i int32) int64 {
	if g == PartitionCount {
		return 1
	}
	return s.load[g][i]
}

func (s *Snapshot) copiesOf(i int32) []copyAt {
	if s.flags[i]&hasCopies == 0 {
		return nil
	}
	from := sort.Search(len(s.copies), func(n int) bool { return s.copies[n].partition >= i })
	to := from
	for to < len(s.copies) && s.copies[to].partition == i {
		to++
	}
	return s.copies[from:to]
}

func (s *Snapshot) followersOf(i int32) []followerAt {
	if s.flags[i]&replicated == 0 {
		return nil
	}
	from := sort.Search(len(s.followers), func(n int) bool { return s.followers[n].partition >= i })
	to := from
	for to < len(s.followers) && s.followers[to].partition == i {
		to++
	}
	return s.followers[from:to]
}

// bytesTo is how much of a partition must be copied to a broker: all, less what is there already.
func (s *Snapshot) bytesTo(i, broker int32) int64 {
	if broker == s.owner[i] {
		return 0
	}
	bytes := s.load[Disk][i]
	for _, c := range s.copiesOf(i) {
		if c.broker == broker {
			return max(0, bytes-c.bytes)
		}
	}
	return bytes
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
