package seglog

import (
	"context"
	"errors"
	"fmt"
	"os"

	"portage/brokeragent/native/recordbatch"
)

// Appended is where batches went.
type Appended struct {
	Base, Next int64
}

// Append writes one or more whole batches at the log's end. Base offsets and the leader epoch are set in place, in the
// given slice. What was appended is not durable before WaitDurable(Next) returns.
//
// An epoch that was not begun is begun here, which costs a durable write; one below the newest is refused. After an error
// nothing was appended; unless Failed says otherwise the log goes on.
func (l *Log) Append(batches []byte, epoch int32) (Appended, error) {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()

	l.mu.Lock()
	err, base, epochs := l.usable(), l.end, l.epochs
	l.mu.Unlock()
	if err != nil {
		return Appended{}, err
	}
	if n := len(epochs); n == 0 || epochs[n-1].Epoch != epoch {
		if err := l.beginEpoch(epoch, base, 0); err != nil {
			return Appended{}, err
		}
	}
	heads, err := stamp(batches, base, epoch)
	if err != nil {
		return Appended{}, fmt.Errorf("append to %s: %w", l.id, err)
	}
	seg, err := l.roomFor(int64(len(batches)))
	if err != nil {
		return Appended{}, err
	}
	if err := l.write(seg, batches); err != nil {
		return Appended{}, err
	}

	l.mu.Lock()
	pos := int64(0)
	for _, h := range heads {
		seg.tally.add(batches[pos:pos+recordbatch.HeaderBytes], h)
		l.producers.remember(h)
		pos += h.TotalBytes()
	}
	l.end = seg.tally.at.next
	next := l.end
	l.mu.Unlock()
	l.poke()
	return Appended{base, next}, nil
}

// stamp gives each batch its offset and epoch.
func stamp(batches []byte, base int64, epoch int32) ([]recordbatch.Header, error) {
	if len(batches) == 0 {
		return nil, fmt.Errorf("%w: no batch at all", recordbatch.ErrShort)
	}
	// All are looked at before any is changed.
	for rest := batches; len(rest) > 0; {
		_, _, after, err := recordbatch.Next(rest)
		if err != nil {
			return nil, err
		}
		rest = after
	}
	var heads []recordbatch.Header
	for rest := batches; len(rest) > 0; {
		_, batch, after, _ := recordbatch.Next(rest)
		recordbatch.SetBaseOffset(batch, base)
		recordbatch.SetLeaderEpoch(batch, epoch)
		h, err := recordbatch.ParseHeader(batch)
		if err != nil {
			return nil, err
		}
		heads, rest, base = append(heads, h), after, h.NextOffset()
	}
	return heads, nil
}

// write is one write at the segment's end. A partial one is taken back, so that a crash cannot bring it to light.
func (l *Log) write(seg *segment, batches []byte) error {
	size := seg.tally.at.size // only changed under appendMu
	_, err := seg.file.WriteAt(batches, size)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("append to %s: %w", l.id, err)
	if cut := seg.file.Truncate(size); cut != nil {
		l.fail(errors.Join(err, cut))
	}
	return err
}

// roomFor returns the active segment, after a roll when n more bytes are too many for it.
func (l *Log) roomFor(n int64) (*segment, error) {
	l.mu.Lock()
	seg := l.active()
	l.mu.Unlock()
	if size := seg.tally.at.size; size == 0 || size+n <= l.opts.SegmentBytes {
		return seg, nil
	}
	return l.roll(seg)
}

// roll starts a new segment. The old one is durable before the new file exists: a segment with a follower can never be
// torn, so recovery may take damage in it for what it is. Its index, the snapshot and the new directory entry are
// made durable by the syncer before anything in the new segment is.
func (l *Log) roll(old *segment) (*segment, error) {
	end := old.tally.at.next
	if err := l.WaitDurable(context.Background(), end); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(fileOf(l.dir, end, logExt), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("roll %s: %w", l.id, err)
	}
	seg := &segment{base: end, tally: newTally(end, l.opts.IndexIntervalBytes), file: f}
	seg.durable = seg.tally.at
	snapshot := l.ProducerSnapshot()
	l.mu.Lock()
	old.sealed = true
	l.segs = append(l.segs, seg)
	l.sealing = append(l.sealing, sealJob{old, snapshot, end})
	l.mu.Unlock()
	return seg, nil
}
