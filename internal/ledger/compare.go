package ledger

import (
	"errors"
	"fmt"
)

// found is one record as a full read saw it.
type found struct {
	partition  int32
	offset     int64
	key, value []byte
}

// comparison holds records read back, fed partition by partition in the order of their offsets (partitions may
// interleave), against what the journals noted. It does no I/O.
type comparison struct {
	verdict  Verdict
	journals map[string]*journalView
	counts   map[string]int // examples kept, by kind
	// acknowledgedAt finds the entry acknowledged at a place; made when the first unreadable record turns up.
	acknowledgedAt map[place]identity
}

type place struct {
	partition int32
	offset    int64
}

// journalView is one journal with what was seen of it.
type journalView struct {
	keys [][]entry
	seen [][]sighting
	last []keyOrder
}

// sighting says how a record was found.
type sighting struct {
	times int32
	right bool // at the acknowledged place, or anywhere when none was named
	wrong place
}

// keyOrder is how far a key has been read.
type keyOrder struct {
	partition int32
	highest   int
	seen      bool
}

// compare takes journals that nobody writes to any more.
func compare(journals ...*journal) *comparison {
	c := &comparison{journals: map[string]*journalView{}, counts: map[string]int{}}
	for _, j := range journals {
		view := &journalView{keys: j.keys, seen: make([][]sighting, len(j.keys)), last: make([]keyOrder, len(j.keys))}
		for key := range j.keys {
			view.seen[key] = make([]sighting, len(j.keys[key]))
		}
		c.journals[j.writer] = view
		c.verdict.Acknowledged += j.acknowledged
		c.verdict.ClientErrors += j.failed
		for _, text := range j.errors {
			c.example("producer error", "%s", text)
		}
	}
	return c
}

func (c *comparison) example(kind, format string, args ...any) {
	if c.counts[kind]++; c.counts[kind] <= maxExamples {
		c.verdict.Examples = append(c.verdict.Examples, kind+": "+fmt.Sprintf(format, args...))
	}
}

// add takes the next record of its partition.
func (c *comparison) add(r found) {
	id, crc, err := decode(r.key, r.value)
	if err != nil {
		c.unreadable(r, err)
		return
	}
	view, known := c.journals[id.writer]
	if !known {
		c.verdict.Foreign++ // of an earlier run on the same topic
		return
	}
	if id.key < 0 || id.key >= len(view.keys) || id.seq < 0 || id.seq >= len(view.keys[id.key]) {
		c.corrupt("%v at %d/%d was never sent", id, r.partition, r.offset)
		return
	}
	e, s := view.keys[id.key][id.seq], &view.seen[id.key][id.seq]
	if e.crc != crc {
		c.corrupt("%v at %d/%d is not what was sent", id, r.partition, r.offset)
		s.times = max(s.times, 1)
		s.right = true
		return
	}
	order := &view.last[id.key]
	if !order.seen {
		*order = keyOrder{r.partition, -1, true}
		if e.offset >= 0 {
			order.partition = e.partition
		}
	}
	samePartition := order.partition == r.partition
	s.times++
	switch {
	case e.offset == offsetAnywhere && samePartition, e.offset < 0 && e.offset != offsetAnywhere, e.offset == r.offset && e.partition == r.partition:
		s.right = true
	default:
		s.wrong = place{r.partition, r.offset}
	}
	if s.times > 1 {
		c.verdict.Duplicated++
		c.example("duplicated", "%v again at %d/%d", id, r.partition, r.offset)
		return
	}
	if !e.acknowledged() {
		c.verdict.Unacknowledged++
	}
	if samePartition && id.seq < order.highest {
		c.verdict.OutOfOrder++
		c.example("out of order", "%v at %d/%d comes after sequence %d", id, r.partition, r.offset, order.highest)
	}
	if samePartition {
		order.highest = max(order.highest, id.seq)
	}
}

func (c *comparison) corrupt(format string, args ...any) {
	c.verdict.Corrupt++
	c.example("corrupt", format, args...)
}

// unreadable records are foreign, unless they claim to be a ledger's or stand where one was acknowledged.
func (c *comparison) unreadable(r found, err error) {
	if c.acknowledgedAt == nil {
		c.acknowledgedAt = map[place]identity{}
		for writer, view := range c.journals {
			for key, entries := range view.keys {
				for seq, e := range entries {
					if e.offset >= 0 {
						c.acknowledgedAt[place{e.partition, e.offset}] = identity{writer, key, seq}
					}
				}
			}
		}
	}
	id, ours := c.acknowledgedAt[place{r.partition, r.offset}]
	switch {
	case ours:
		c.corrupt("%v at %d/%d: %v", id, r.partition, r.offset, err)
		s := &c.journals[id.writer].seen[id.key][id.seq]
		s.times, s.right = max(s.times, 1), true // there, but broken: one fault, not two
	case errors.Is(err, errForeign):
		c.verdict.Foreign++
	default:
		c.corrupt("a record at %d/%d: %v", r.partition, r.offset, err)
	}
}

// finish counts what was never seen, or only at a wrong place, and returns the verdict.
func (c *comparison) finish() Verdict {
	for writer, view := range c.journals {
		for key, entries := range view.keys {
			for seq, e := range entries {
				if e.offset == offsetPending {
					c.verdict.InFlight++
				}
				if !e.acknowledged() {
					continue
				}
				id, s := identity{writer, key, seq}, view.seen[key][seq]
				switch {
				case s.times == 0:
					c.verdict.Lost++
					c.example("lost", "%v, acknowledged at %d/%d", id, e.partition, e.offset)
					continue
				case !s.right:
					c.verdict.Misplaced++
					c.example("at another offset", "%v, acknowledged at %d/%d, is at %d/%d", id, e.partition, e.offset, s.wrong.partition, s.wrong.offset)
				}
				c.verdict.Found++
			}
		}
	}
	return c.verdict
}
