package native

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"portage/brokeragent/control"
	"portage/brokeragent/native/recordbatch"
	"portage/brokeragent/native/seglog"
	"portage/brokeragent/native/wire"
	"portage/internal/faults"
)

// produce is one batch on its way: appended, parked or refused. It is decided exactly once.
type produce struct {
	req     wire.ProduceRequest
	header  recordbatch.Header
	decided chan struct{} // closed once answer or log is set
	answer  *wire.ProduceAnswer

	partition *Partition
	log       *seglog.Log // set when the batch is in the log (or was before): success once end is durable
	base, end int64
	start     int64

	parkedAt time.Time
	timer    *time.Timer
	ahead    bool // held because its sequence is ahead of what a newly opened owner knows (R27 iii)
}

func (w *produce) refuse(code int16, hint *wire.LeaderHint) {
	w.answer = &wire.ProduceAnswer{Code: code, BaseOffset: -1, LogStart: -1, Leader: hint}
	close(w.decided)
}

// Wait implements wire.PendingProduce.
func (w *produce) Wait(ctx context.Context) wire.ProduceAnswer {
	<-w.decided // every park has a bound
	if w.answer != nil {
		return *w.answer
	}
	if err := w.log.WaitDurable(ctx, w.end); err != nil {
		// The batch may or may not be on disk. The log has failed and takes nothing any more, so a retry that comes back
		// with the same sequence meets the producer state rebuilt from what the disk really holds.
		w.partition.checkStorage()
		return wire.ProduceAnswer{Code: kerr.KafkaStorageError.Code, Message: err.Error(), BaseOffset: -1, LogStart: -1}
	}
	if w.partition.fenced() {
		// R2: on this disk, and not acknowledged: by now the partition may be another broker's, without it.
		return wire.ProduceAnswer{Code: kerr.NotLeaderForPartition.Code, BaseOffset: -1, LogStart: -1}
	}
	return wire.ProduceAnswer{BaseOffset: w.base, LogStart: w.start}
}

// Produce implements wire.Broker.
func (b *Broker) Produce(_ context.Context, req wire.ProduceRequest) wire.PendingProduce {
	w := &produce{req: req, decided: make(chan struct{})}
	headers, err := recordbatch.ValidateForProduce(req.Records)
	if err == nil && len(headers) != 1 {
		err = recordbatch.ErrCorrupt // Kafka takes exactly one batch a partition and request
	}
	if err != nil {
		code := kerr.CorruptMessage.Code
		if errors.Is(err, recordbatch.ErrTransactional) {
			code = kerr.TransactionalIDAuthorizationFailed.Code
		}
		w.answer = &wire.ProduceAnswer{Code: code, Message: err.Error(), BaseOffset: -1, LogStart: -1}
		close(w.decided)
		return w
	}
	w.header = headers[0]
	p := b.lookup(req.PartitionRef)
	if p == nil {
		code, hint := b.elsewhere(req.PartitionRef)
		w.refuse(code, hint)
		return w
	}
	w.partition = p
	p.mu.Lock()
	defer p.mu.Unlock()
	p.admit(w)
	return w
}

// admit decides what happens to a batch in the partition's present state. The caller holds mu.
func (p *Partition) admit(w *produce) {
	switch p.state {
	case StateOpen:
		if p.fenced() {
			p.refused[w.req.Conn] = time.Now() // R27 i: what has arrived behind it does not overtake it
			w.refuse(kerr.NotLeaderForPartition.Code, nil)
			return
		}
		if p.refusedWith(w) {
			w.refuse(kerr.RequestTimedOut.Code, nil)
			return
		}
		p.append(w)
	case StateFrozen, StateOpening:
		if p.refusedWith(w) {
			// R27 i: what came behind a refused batch is refused too, or it would overtake it.
			w.refuse(p.parkRefusal(time.Now()), nil)
			return
		}
		p.parkBatch(w)
	case StateClosed:
		w.refuse(kerr.KafkaStorageError.Code, nil)
	case StateElsewhere:
		if p.expectsCommit() {
			p.parkBatch(w)
			return
		}
		code, hint := p.broker.elsewhere(w.req.PartitionRef)
		w.refuse(code, hint)
	case StateGone:
		w.refuse(kerr.UnknownTopicOrPartition.Code, nil)
	}
}

// expectsCommit reports whether this broker holds the installed copy of a move in its cutover. A client that comes here
// may have heard of the flip before this broker has: it is parked until the row is known, for sending it back to the old
// owner would cost it seconds. The caller holds mu.
func (p *Partition) expectsCommit() bool {
	if p.install == nil {
		return false
	}
	p.broker.lookAgain(p)
	return true
}

// refusedWith reports whether the batch came behind one of its connection that was refused out of the park. It counts
// what had arrived by then, and everything that arrives while the same freeze, or the same opening, lasts. An earlier
// freeze's refusals do not count in a later one: the client has long sent again what it was refused.
func (p *Partition) refusedWith(w *produce) bool {
	at, ok := p.refused[w.req.Conn]
	if !ok || !faults.Enforced("R27") {
		return false
	}
	parking := p.state == StateFrozen || p.state == StateOpening
	return !w.req.Arrived.After(at) || (parking && !at.Before(p.since))
}

// append puts a batch into the open log. Nothing is awaited here: the caller holds mu.
func (p *Partition) append(w *produce) {
	verdict := p.log.CheckProducer(w.header)
	switch verdict.Kind {
	case seglog.Duplicate:
		// Sent again after a lost answer, perhaps across a move: it gets its first offset.
		w.log, w.base, w.end, w.start = p.log, verdict.BaseOffset, verdict.EndOffset, p.log.Start()
		close(w.decided)
		return
	case seglog.Fenced:
		w.refuse(kerr.InvalidProducerEpoch.Code, nil)
		return
	case seglog.OutOfOrder:
		if p.holdsAhead() && isAhead(w.header.BaseSequence, verdict.ExpectedSequence) {
			p.holdAhead(w)
			return
		}
		w.refuse(kerr.OutOfOrderSequenceNumber.Code, nil)
		return
	case seglog.Accept:
		if verdict.UnknownProducer && p.holdsAhead() {
			p.holdAhead(w)
			return
		}
	}
	appended, err := p.log.Append(w.req.Records, p.serving)
	if err != nil {
		if p.log.Failed() != nil {
			p.failStorage(err)
		} else {
			p.logger.Warn("a batch could not be written; the log is as before", "error", err) // a full disk, say
		}
		w.refuse(kerr.KafkaStorageError.Code, nil)
		return
	}
	p.producedBytes += int64(len(w.req.Records))
	if m := p.broker.cfg.Metrics; m != nil {
		m.ProducedBytes.Add(float64(len(w.req.Records)))
	}
	w.log, w.base, w.end, w.start = p.log, appended.Base, appended.Next, p.log.Start()
	close(w.decided)
	if w.header.ProducerID >= 0 {
		p.releaseAhead(w.header.ProducerID)
	}
}

// isAhead reports whether a sequence comes after the expected one; sequences wrap to 0 after the largest int32.
func isAhead(sequence, expected int32) bool {
	const span = 1 << 31
	return (int64(sequence)-int64(expected)+span)%span < span/2
}

// failStorage closes the partition after a failed write or fsync, which is never retried: the process's view of the
// file can no longer be trusted, only a restart re-reads it from disk.
func (p *Partition) failStorage(err error) {
	p.logger.Error("the disk failed; the partition is closed until this agent restarts", "error", err)
	p.endFreeze(false)
	p.setState(StateClosed, "the disk failed: "+err.Error()+"; mend it and restart this agent")
	p.reasonCode = control.CodeStorage
	p.refusePark(kerr.KafkaStorageError.Code, nil)
}

// checkStorage closes the partition if its disk has failed; called by whoever waited in vain for something to be durable.
func (p *Partition) checkStorage() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.serves() {
		p.failBrokenStorage()
	}
}

// failBrokenStorage closes a served partition whose log or committed offsets have failed. The caller holds mu.
func (p *Partition) failBrokenStorage() (failed bool) {
	err := errors.Join(p.log.Failed(), p.offsets.Failed())
	if err != nil {
		p.failStorage(err)
	}
	return err != nil
}
