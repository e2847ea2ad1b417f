package seglog

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"portage/brokeragent/native/recordbatch"
)

// rememberedBatches is how many batches of a producer are recognised when they come again; Kafka clients keep at most
// five in flight.
const rememberedBatches = 5

// VerdictKind says what to do with an idempotent batch.
type VerdictKind int

const (
	// Accept: append it.
	Accept VerdictKind = iota
	// Duplicate: it is in the log; acknowledge with BaseOffset after WaitDurable(EndOffset).
	Duplicate
	// OutOfOrder: a batch before it is missing; ExpectedSequence comes next.
	OutOfOrder
	// Fenced: a newer incarnation of the producer has written; CurrentEpoch is its epoch.
	Fenced
)

func (k VerdictKind) String() string {
	return [...]string{"accept", "duplicate", "out of order", "fenced"}[k]
}

// Verdict is the answer to CheckProducer.
type Verdict struct {
	Kind VerdictKind
	// UnknownProducer accompanies Accept: the log knows nothing of this producer and the batch is not its first. The
	// caller decides.
	UnknownProducer bool

	BaseOffset, EndOffset int64 // of the original, with Duplicate; the original may not be durable yet
	Timestamp             int64 // of the original
	ExpectedSequence      int32 // with OutOfOrder
	CurrentEpoch          int16 // of the producer, when it is known
}

type rememberedBatch struct {
	first, last int32 // sequences; last wraps
	base        int64
	timestamp   int64
}

// end is the offset after the batch: sequences count records, and ValidateForProduce saw one record an offset.
func (b rememberedBatch) end() int64 {
	n := int64(b.last) - int64(b.first)
	if n < 0 {
		n += math.MaxInt32 + 1
	}
	return b.base + n + 1
}

// producer is what is known of one producer id. The newest batch is the last of n.
type producer struct {
	epoch   int16
	n       int8
	batches [rememberedBatches]rememberedBatch
}

func (p *producer) newest() rememberedBatch { return p.batches[p.n-1] }

type producerTable map[int64]*producer

// sequenceAfter adds to a sequence; sequences wrap from the largest int32 to 0.
func sequenceAfter(seq, n int32) int32 {
	sum := int64(seq) + int64(n)
	if sum > math.MaxInt32 {
		sum -= math.MaxInt32 + 1
	}
	return int32(sum)
}

func (t producerTable) check(h recordbatch.Header) Verdict {
	if h.ProducerID < 0 {
		return Verdict{Kind: Accept}
	}
	p, known := t[h.ProducerID]
	if !known {
		return Verdict{Kind: Accept, UnknownProducer: h.BaseSequence != 0, CurrentEpoch: -1}
	}
	v := Verdict{CurrentEpoch: p.epoch}
	switch {
	case h.ProducerEpoch < p.epoch:
		v.Kind = Fenced
	case h.ProducerEpoch > p.epoch:
		if h.BaseSequence != 0 {
			v.Kind = OutOfOrder // a new incarnation starts at 0: ExpectedSequence
		}
	default:
		last := sequenceAfter(h.BaseSequence, h.LastOffsetDelta)
		for _, b := range p.batches[:p.n] {
			if b.first == h.BaseSequence && b.last == last {
				v.Kind, v.BaseOffset, v.EndOffset, v.Timestamp = Duplicate, b.base, b.end(), b.timestamp
				return v
			}
		}
		if expected := sequenceAfter(p.newest().last, 1); h.BaseSequence != expected {
			v.Kind, v.ExpectedSequence = OutOfOrder, expected
		}
	}
	return v
}

func (t producerTable) remember(h recordbatch.Header) {
	if h.ProducerID < 0 || h.BaseSequence < 0 {
		return
	}
	p := t[h.ProducerID]
	if p == nil || p.epoch != h.ProducerEpoch {
		p = &producer{epoch: h.ProducerEpoch}
		t[h.ProducerID] = p
	}
	if p.n == rememberedBatches {
		copy(p.batches[:], p.batches[1:])
		p.n--
	}
	p.batches[p.n] = rememberedBatch{h.BaseSequence, sequenceAfter(h.BaseSequence, h.LastOffsetDelta), h.BaseOffset, h.MaxTimestamp}
	p.n++
}

// expire forgets producers whose last batch lies below start and is older than before (milliseconds).
func (t producerTable) expire(start, before int64) {
	for id, p := range t {
		if b := p.newest(); b.base < start && b.timestamp < before {
			delete(t, id)
		}
	}
}

const (
	producersMagic = "PSP1"
	rememberedSize = 4 + 4 + 8 + 8
)

func (t producerTable) encode(end int64) []byte {
	ids := make([]int64, 0, len(t))
	for id := range t {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	b := append([]byte(nil), producersMagic...)
	b = binary.BigEndian.AppendUint64(b, uint64(end))
	for _, id := range ids {
		p := t[id]
		b = binary.BigEndian.AppendUint64(b, uint64(id))
		b = binary.BigEndian.AppendUint16(b, uint16(p.epoch))
		b = append(b, byte(p.n))
		for _, r := range p.batches[:p.n] {
			b = binary.BigEndian.AppendUint32(b, uint32(r.first))
			b = binary.BigEndian.AppendUint32(b, uint32(r.last))
			b = binary.BigEndian.AppendUint64(b, uint64(r.base))
			b = binary.BigEndian.AppendUint64(b, uint64(r.timestamp))
		}
	}
	return sealFrame(b)
}

func decodeProducers(b []byte) (t producerTable, end int64, err error) {
	if b, err = openFrame(b, producersMagic); err != nil {
		return nil, 0, fmt.Errorf("producer snapshot: %w", err)
	}
	if len(b) < 8 {
		return nil, 0, fmt.Errorf("producer snapshot: %w", errBadFrame)
	}
	t, end = producerTable{}, int64(binary.BigEndian.Uint64(b))
	for b = b[8:]; len(b) > 0; {
		if len(b) < 11 || b[10] < 1 || b[10] > rememberedBatches || len(b) < 11+int(b[10])*rememberedSize {
			return nil, 0, fmt.Errorf("producer snapshot: %w", errBadFrame)
		}
		p := &producer{epoch: int16(binary.BigEndian.Uint16(b[8:])), n: int8(b[10])}
		t[int64(binary.BigEndian.Uint64(b))] = p
		b = b[11:]
		for i := range p.n {
			p.batches[i] = rememberedBatch{
				first:     int32(binary.BigEndian.Uint32(b)),
				last:      int32(binary.BigEndian.Uint32(b[4:])),
				base:      int64(binary.BigEndian.Uint64(b[8:])),
				timestamp: int64(binary.BigEndian.Uint64(b[16:])),
			}
			b = b[rememberedSize:]
		}
	}
	return t, end, nil
}

// SnapshotEnd is the offset up to which an encoded producer snapshot has seen the log.
func SnapshotEnd(snapshot []byte) (int64, error) {
	_, end, err := decodeProducers(snapshot)
	return end, err
}

// CheckProducer judges an idempotent batch against everything appended so far, durable or not.
func (l *Log) CheckProducer(h recordbatch.Header) Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.producers.check(h)
}

// ProducerSnapshot encodes the producer state at End.
func (l *Log) ProducerSnapshot() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.producers.encode(l.end)
}

// ProducerCount is the number of producers known.
func (l *Log) ProducerCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.producers)
}
