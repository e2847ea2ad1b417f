package seglog

import (
	"fmt"
	"os"

	"portage/brokeragent/native/recordbatch"
)

// keptSnapshots is how many producer snapshots stay on disk: the newest, and one should it be unreadable.
const keptSnapshots = 2

// writeSnapshot stores the producer state at end, which is durable: the file is also the proof of that.
func (l *Log) writeSnapshot(snapshot []byte, end int64) error {
	l.structMu.Lock()
	defer l.structMu.Unlock()
	if err := writeDurable(fileOf(l.dir, end, producersExt), snapshot); err != nil {
		return fmt.Errorf("producer snapshot of %s: %w", l.id, err)
	}
	return pruneSnapshots(l.dir)
}

func pruneSnapshots(dir string) error {
	offsets, err := offsetsOf(dir, producersExt)
	if err != nil {
		return err
	}
	for i := 0; i < len(offsets)-keptSnapshots; i++ {
		if err := removeIfThere(fileOf(dir, offsets[i], producersExt)); err != nil {
			return err
		}
	}
	return nil
}

// newestSnapshot reads the newest producer snapshot that is sound; without one, an empty state at from.
func newestSnapshot(dir string, from int64) (producerTable, int64, error) {
	offsets, err := offsetsOf(dir, producersExt)
	if err != nil {
		return nil, 0, err
	}
	for i := len(offsets) - 1; i >= 0; i-- {
		b, err := os.ReadFile(fileOf(dir, offsets[i], producersExt))
		if err != nil {
			return nil, 0, err
		}
		if t, end, err := decodeProducers(b); err == nil && end == offsets[i] && end >= from {
			return t, end, nil
		}
	}
	return producerTable{}, from, nil
}

// replayHeads brings producer state from one offset to the end of segs by the heads of the batches between.
func replayHeads(dir string, t producerTable, from int64, segs []*segment) error {
	for _, s := range segs {
		if s.tally.at.next <= from {
			continue
		}
		m := s.tally.beforeOffset(from)
		f, err := os.Open(fileOf(dir, s.base, logExt))
		if err != nil {
			return err
		}
		err = walkHeads(f, m.size, s.tally.at.size, func(_ int64, _ []byte, h recordbatch.Header) bool {
			if h.BaseOffset >= from {
				t.remember(h)
			}
			return true
		})
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
