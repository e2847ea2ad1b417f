package seglog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"portage/brokeragent/native/recordbatch"
	"portage/internal/durable"
)

// Recovery says what Open found and did.
type Recovery struct {
	// CutFile is the segment whose torn tail was cut; empty when there was none. The log ends at CutOffset, the file at
	// CutPosition, and CutBytes went, because of CutReason.
	CutFile     string
	CutOffset   int64
	CutPosition int64
	CutBytes    int64
	CutReason   string

	RebuiltIndexes []int64 // sealed segments whose index was missing or did not match
	ReplayedFrom   int64   // producer state was rebuilt from the batch heads at and after this offset
}

// Open opens the log in dir. It never creates one (R5), and cuts only what cannot have been durable.
func Open(dir string, opts Options) (*Log, Recovery, error) {
	opts = opts.withDefaults()
	dir = filepath.Clean(dir)
	var rec Recovery
	l, err := open(dir, opts, &rec)
	if err != nil {
		return nil, rec, fmt.Errorf("open log: %w", err)
	}
	return l, rec, nil
}

func open(dir string, opts Options, rec *Recovery) (_ *Log, err error) {
	m, err := readMeta(dir)
	if err != nil {
		return nil, err
	}
	if err := removeTemps(dir); err != nil {
		return nil, err
	}
	bases, err := basesToOpen(dir, m.LogStart)
	if err != nil {
		return nil, err
	}
	l := &Log{dir: dir, id: m.Identity, opts: opts, start: m.LogStart}
	defer func() {
		if err != nil && len(l.segs) > 0 && l.active().file != nil {
			l.active().file.Close()
		}
	}()
	for i, base := range bases {
		var seg *segment
		if i < len(bases)-1 {
			seg, err = openSealed(dir, base, opts, rec)
			if err == nil && seg.tally.at.next != bases[i+1] {
				err = &CorruptError{File: fileOf(dir, base, logExt), Position: seg.tally.at.size,
					Err: fmt.Errorf("segment ends at offset %d, the next begins at %d", seg.tally.at.next, bases[i+1])}
			}
		} else {
			seg, err = l.openActive(base, rec)
		}
		if err != nil {
			return nil, err
		}
		l.segs = append(l.segs, seg)
	}
	l.end = l.active().tally.at.next
	l.durableEnd = l.end
	if l.end < l.start {
		return nil, &CorruptError{File: fileOf(dir, l.active().base, logExt), Position: l.active().tally.at.size,
			Err: fmt.Errorf("log ends at offset %d, before its start %d", l.end, l.start)}
	}
	if l.epochs, err = readEpochs(dir); err != nil {
		return nil, err
	}
	if len(l.epochs) == 0 && l.Size() > 0 {
		return nil, &CorruptError{File: filepath.Join(dir, epochsFile), Err: errors.New("there are batches and no epochs")}
	}
	if l.producers, rec.ReplayedFrom, err = newestSnapshot(dir, bases[0]); err != nil {
		return nil, err
	}
	if err := replayHeads(dir, l.producers, rec.ReplayedFrom, l.segs); err != nil {
		return nil, err
	}
	return l.run(), nil
}

// basesToOpen lists the segments, after finishing a deletion that a crash interrupted.
func basesToOpen(dir string, start int64) ([]int64, error) {
	bases, err := offsetsOf(dir, logExt)
	if err != nil {
		return nil, err
	}
	for len(bases) > 1 && bases[1] <= start {
		if err := removeSegmentFiles(dir, bases[0]); err != nil {
			return nil, err
		}
		bases = bases[1:]
	}
	if len(bases) == 0 || bases[0] > start {
		return nil, &CorruptError{File: fileOf(dir, start, logExt), Err: fmt.Errorf("no segment holds the log start %d", start)}
	}
	indexes, err := offsetsOf(dir, indexExt)
	if err != nil {
		return nil, err
	}
	for _, base := range indexes {
		// The last segment grows: an index there is from a crash between a roll's steps.
		if i, found := slices.BinarySearch(bases, base); !found || i == len(bases)-1 {
			if err := removeIfThere(fileOf(dir, base, indexExt)); err != nil {
				return nil, err
			}
		}
	}
	return bases, nil
}

func removeSegmentFiles(dir string, base int64) error {
	return removeIfThere(fileOf(dir, base, logExt), fileOf(dir, base, indexExt))
}

// openSealed trusts an index that fits the file; without one it reads every byte.
func openSealed(dir string, base int64, opts Options, rec *Recovery) (*segment, error) {
	path := fileOf(dir, base, logExt)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	t, ok, err := loadIndex(dir, base, info.Size())
	if err != nil {
		return nil, err
	}
	if !ok {
		var damage error
		if t, damage, err = scan(f, base, opts.IndexIntervalBytes); err != nil {
			return nil, err
		}
		if damage != nil {
			return nil, &CorruptError{File: path, Position: t.at.size, Err: damage}
		}
		rec.RebuiltIndexes = append(rec.RebuiltIndexes, base)
		if err := writeDurable(fileOf(dir, base, indexExt), t.encode()); err != nil {
			opts.Logger.Warn("rebuilt index was not stored", "segment", path, "err", err)
		}
	}
	return &segment{base: base, tally: t, durable: t.at, sealed: true}, nil
}

// openActive scans the last segment and cuts its torn tail.
func (l *Log) openActive(base int64, rec *Recovery) (_ *segment, err error) {
	path := fileOf(l.dir, base, logExt)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	// What a killed process wrote and never fsynced is shown from now on (R25).
	if err := durable.Settle(f, l.opts.syncFile); err != nil {
		return nil, err
	}
	t, damage, err := scan(f, base, l.opts.IndexIntervalBytes)
	if err != nil {
		return nil, err
	}
	if proven, err := provenEnd(l.dir); err != nil {
		return nil, err
	} else if t.at.next < proven {
		if damage == nil {
			damage = recordbatch.ErrShort
		}
		return nil, &CorruptError{File: path, Position: t.at.size,
			Err: fmt.Errorf("the log was durable up to offset %d and is sound only up to %d: %w", proven, t.at.next, damage)}
	}
	if damage != nil {
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		rec.CutFile, rec.CutOffset, rec.CutPosition = path, t.at.next, t.at.size
		rec.CutBytes, rec.CutReason = info.Size()-t.at.size, damage.Error()
		l.opts.Logger.Warn("torn tail cut", "segment", path, "offset", rec.CutOffset, "bytes", rec.CutBytes, "reason", rec.CutReason)
		if err := f.Truncate(t.at.size); err != nil {
			return nil, err
		}
		if err := l.opts.syncFile(f); err != nil {
			return nil, err
		}
	}
	return &segment{base: base, tally: t, durable: t.at, file: f}, nil
}

// provenEnd is an offset up to which the log is known to have been durable: a sound producer snapshot is only written
// at one.
func provenEnd(dir string) (int64, error) {
	_, end, err := newestSnapshot(dir, 0)
	return end, err
}
