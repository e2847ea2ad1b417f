package seglog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"
)

// Epoch is where an epoch begins. An epoch in which nothing was written has an entry too.
type Epoch struct {
	Epoch int32 `json:"epoch"`
	Start int64 `json:"start"`
	// Lost is how many offsets before Start were lost when the epoch began (R18): what an earlier history holds of them it
	// holds alone.
	Lost int64 `json:"lost,omitempty"`
}

type epochList struct {
	Format int     `json:"format"`
	Epochs []Epoch `json:"epochs"`
}

func checkEpochs(epochs []Epoch) error {
	for i, e := range epochs {
		if e.Epoch < 0 || e.Start < 0 || i > 0 && (e.Epoch <= epochs[i-1].Epoch || e.Start < epochs[i-1].Start) {
			return fmt.Errorf("epochs are not in order: %v", epochs)
		}
	}
	return nil
}

func readEpochs(dir string) ([]Epoch, error) {
	path := filepath.Join(dir, epochsFile)
	var list epochList
	if err := readJSON(path, &list); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	if list.Format != 1 {
		return nil, &CorruptError{File: path, Err: fmt.Errorf("format %d", list.Format)}
	}
	if err := checkEpochs(list.Epochs); err != nil {
		return nil, &CorruptError{File: path, Err: err}
	}
	return list.Epochs, nil
}

// ReadEpochs reads the epoch starts of a log, or a staged copy, that is not open; none when there is no list.
func ReadEpochs(dir string) ([]Epoch, error) { return readEpochs(dir) }

// BeginEpoch records that an epoch starts at the log's end. It is durable when BeginEpoch returns; the same epoch with
// the same start again is fine.
func (l *Log) BeginEpoch(epoch int32, start int64) error {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	return l.beginEpoch(epoch, start, 0)
}

// BeginEpochAfterLoss is BeginEpoch of a log that goes on behind lost offsets.
func (l *Log) BeginEpochAfterLoss(epoch int32, start, lost int64) error {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	return l.beginEpoch(epoch, start, lost)
}

// beginEpoch runs under appendMu, so the end stands still.
func (l *Log) beginEpoch(epoch int32, start, lost int64) error {
	l.mu.Lock()
	err, epochs, end := l.usable(), l.epochs, l.end
	l.mu.Unlock()
	if err != nil {
		return err
	}
	for _, e := range epochs {
		if e.Epoch == epoch && e.Start == start {
			return nil
		}
	}
	if n := len(epochs); epoch < 0 || n > 0 && epochs[n-1].Epoch >= epoch {
		return fmt.Errorf("epoch %d from %d of %s: %w: %v", epoch, start, l.id, ErrStaleEpoch, epochs)
	}
	if start != end {
		return fmt.Errorf("epoch %d of %s must start at the log's end %d, not %d", epoch, l.id, end, start)
	}
	// Otherwise a crash could leave an epoch that starts beyond the end.
	if err := l.WaitDurable(context.Background(), start); err != nil {
		return err
	}
	epochs = append(slices.Clone(epochs), Epoch{epoch, start, lost})
	l.structMu.Lock()
	err = writeDurable(filepath.Join(l.dir, epochsFile), encodeJSON(epochList{1, epochs}))
	l.structMu.Unlock()
	if err != nil {
		return fmt.Errorf("begin epoch %d of %s: %w", epoch, l.id, err)
	}
	l.mu.Lock()
	l.epochs = epochs
	l.mu.Unlock()
	return nil
}

// Epochs lists the epoch starts, oldest first.
func (l *Log) Epochs() []Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.epochs)
}

// EndOfEpoch answers Kafka's OffsetForLeaderEpoch: the largest known epoch that is not above the asked one, and where it
// ends: at the start of the next, or at the log's end. (-1, -1) when the asked epoch is older than all that is known.
func (l *Log) EndOfEpoch(epoch int32) (int32, int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := sort.Search(len(l.epochs), func(i int) bool { return l.epochs[i].Epoch > epoch })
	switch {
	case n == 0:
		return -1, -1
	case n == len(l.epochs):
		return l.epochs[n-1].Epoch, l.end
	}
	return l.epochs[n-1].Epoch, l.epochs[n].Start
}

// EpochAt is the epoch a record at offset was, or would be, written in; -1 when none is known.
func (l *Log) EpochAt(offset int64) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := sort.Search(len(l.epochs), func(i int) bool { return l.epochs[i].Start > offset })
	if n == 0 {
		return -1
	}
	return l.epochs[n-1].Epoch
}
