package planner

import (
	"fmt"
	"math"
	"time"
)

// maxWindow bounds what a partition's window may take in memory.
const maxWindow = 10_000

// PartitionKey names a partition by the topic's id, so that a recreated topic begins with an empty window.
type PartitionKey struct {
	Topic     [16]byte
	Partition int32
}

// Report is what a broker tells of one partition. The sums count since the broker's process started and never include
// copies (M33).
type Report struct {
	Key      PartitionKey
	Process  [16]byte  // of the reporting broker's process: another one counts from 0 again
	At       time.Time // of the counters
	Disk     int64
	Produced int64
	Consumed int64
}

// Loads is what a window makes of its samples.
type Loads struct {
	In, Out, Disk int64 // the percentile: bytes a second, bytes a second, bytes
	Samples       int
	Trusted       bool // Samples >= MinValid (M38)
}

// Windows turn reports into loads: cumulative counters into rates (M32), rates into a window of samples for each partition
// (M36), a window into a percentile (M37). All samples of 4096 partitions lie in one piece of memory, as float32: an
// error of 1 in 16 million moves no partition. Windows are not safe for concurrent use.
//
// Whoever owns the Windows brings them a report of every partition in each pass, at the pass's time, also of one whose
// counters stand still, or keeps the partition, and ends the pass with EndPass.
type Windows struct {
	size       int
	percentile float64
	minValid   int

	slots   map[PartitionKey]int32
	keys    []PartitionKey
	rings   []ring
	samples [][]float32 // blocks of blockSlots * numResources * size
	free    []int32
	pass    uint32
	scratch []float32
}

const blockSlots = 4096

// ring is one partition's baseline and the state of its ring buffers.
type ring struct {
	process            uint64 // a digest of the process instance
	at                 int64  // nanoseconds; 0: nothing was seen
	produced, consumed int64
	pass               uint32
	next, count        uint16
}

// NewWindows makes empty windows as the settings say.
func NewWindows(s Settings) (*Windows, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return &Windows{size: s.Window, percentile: s.Percentile, minValid: s.MinValid, slots: map[PartitionKey]int32{}, scratch: make([]float32, s.Window), pass: 1}, nil
}

// Feed takes one report. The first of a partition primes; so does one of another process, one whose time did not advance,
// and one whose counters went back: it gives no sample (M32). Only the others add one.
func (w *Windows) Feed(r Report) error {
	if r.Disk < 0 || r.Produced < 0 || r.Consumed < 0 {
		return fmt.Errorf("the report of partition %d has a negative figure; it was left out", r.Key.Partition)
	}
	slot, known := w.slots[r.Key]
	if !known {
		slot = w.claim(r.Key)
	}
	of := &w.rings[slot]
	at, process := r.At.UnixNano(), digest(r.Process)
	if of.at != 0 && at > of.at && process == of.process && r.Produced >= of.produced && r.Consumed >= of.consumed {
		seconds := float64(at-of.at) / 1e9
		w.add(slot, float64(r.Produced-of.produced)/seconds, float64(r.Consumed-of.consumed)/seconds, float64(r.Disk))
	}
	of.at, of.process, of.produced, of.consumed, of.pass = at, process, r.Produced, r.Consumed, w.pass
	return nil
}

// Keep keeps what is known of a partition through a pass in which its owner, a new one, has not reported yet. It gives no sample.
func (w *Windows) Keep(key PartitionKey) {
	if slot, known := w.slots[key]; known {
		w.rings[slot].pass, w.rings[slot].process = w.pass, math.MaxUint64 // no process that reports, so that the next one primes
	}
}

// EndPass drops every partition that was not reported since the last EndPass, with its window and baseline (M35).
func (w *Windows) EndPass() (dropped int) {
	for slot := range w.rings {
		of := &w.rings[slot]
		if of.pass == w.pass || of.at == 0 {
			continue
		}
		delete(w.slots, w.keys[slot])
		*of = ring{}
		w.free = append(w.free, int32(slot))
		dropped++
	}
	w.pass++
	return dropped
}

// Loads is what is known of a partition; zero when nothing is.
func (w *Windows) Loads(key PartitionKey) Loads {
	slot, ok := w.slots[key]
	if !ok {
		return Loads{Trusted: w.minValid == 0}
	}
	of := &w.rings[slot]
	l := Loads{Samples: int(of.count), Trusted: int(of.count) >= w.minValid}
	l.In, l.Out, l.Disk = w.of(slot, NWIn), w.of(slot, NWOut), w.of(slot, Disk)
	return l
}

// Len is how many partitions have a window.
func (w *Windows) Len() int { return len(w.slots) }

func (w *Windows) claim(key PartitionKey) int32 {
	var slot int32
	if n := len(w.free); n > 0 {
		slot, w.free = w.free[n-1], w.free[:n-1]
	} else {
		slot = int32(len(w.rings))
		w.rings = append(w.rings, ring{})
		w.keys = append(w.keys, PartitionKey{})
		if int(slot)/blockSlots == len(w.samples) {
			w.samples = append(w.samples, make([]float32, blockSlots*numResources*w.size))
		}
	}
	w.keys[slot] = key
	w.slots[key] = slot
	return slot
}

// ringOf is the memory of one resource's samples; the first count of them are in use.
func (w *Windows) ringOf(slot int32, resource Goal) []float32 {
	start := (int(slot%blockSlots)*numResources + int(resource)) * w.size
	return w.samples[slot/blockSlots][start : start+w.size]
}

func (w *Windows) add(slot int32, in, out, disk float64) {
	of := &w.rings[slot]
	w.ringOf(slot, NWIn)[of.next] = float32(in)
	w.ringOf(slot, NWOut)[of.next] = float32(out)
	w.ringOf(slot, Disk)[of.next] = float32(disk)
	of.count = min(of.count+1, uint16(w.size))
	if of.next++; int(of.next) == w.size {
		of.next = 0
	}
}

func (w *Windows) of(slot int32, resource Goal) int64 {
	n := copy(w.scratch, w.ringOf(slot, resource)[:w.rings[slot].count])
	return int64(math.Round(percentile(w.scratch[:n], w.percentile)))
}

func digest(id [16]byte) uint64 {
	var a, b uint64
	for i := range 8 {
		a, b = a<<8|uint64(id[i]), b<<8|uint64(id[8+i])
	}
	return a ^ b*0x9e3779b97f4a7c15
}
