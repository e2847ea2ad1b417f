package ledger

import (
	"bufio"
	"fmt"
	"os"
	"sync"
	"time"
)

// What is known of a sent record that has no offset.
const (
	offsetPending  = -1 // no answer yet
	offsetFailed   = -2 // the client reported an error
	offsetAnywhere = -3 // acknowledged by a client that names no offsets
)

// entry is one sent record. Its key and sequence are its place in the journal.
type entry struct {
	offset    int64
	partition int32
	crc       uint32
}

func (e entry) acknowledged() bool { return e.offset >= 0 || e.offset == offsetAnywhere }

// journal notes what one writer sent and what was acknowledged: in memory by key and sequence, and in a file.
type journal struct {
	writer string

	mu           sync.Mutex // guards all below
	keys         [][]entry  // [key][sequence]
	sent         int64
	acknowledged int64
	failed       int64
	errors       []string // the first few
	file         *os.File // nil once closed: the journal changes no more
	out          *bufio.Writer
	flushed      time.Time
	fileErr      error
}

func newJournal(path, writer, topic string, keys int) (*journal, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("journal of writer %s: %w", writer, err)
	}
	j := &journal{writer: writer, keys: make([][]entry, keys), file: file, out: bufio.NewWriterSize(file, 64<<10), flushed: time.Now()}
	fmt.Fprintf(j.out, "# topic %s, writer %s: partition offset key sequence crc; offset -3: acknowledged without one\n", topic, writer)
	return j, nil
}

// next makes the key's next record and notes it as sent.
func (j *journal) next(key, size int) (identity, []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	id := identity{j.writer, key, len(j.keys[key])}
	value, crc := encode(id, size)
	j.keys[key] = append(j.keys[key], entry{offsetPending, -1, crc})
	j.sent++
	return id, value
}

func (j *journal) acknowledge(id identity, partition int32, offset int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return // came after the close: it was in flight
	}
	j.acknowledgeLocked(id, partition, offset)
	// Not fsynced: the journal outlives the processes under test, not the machine.
	if now := time.Now(); now.Sub(j.flushed) > time.Second {
		j.flushed = now
		j.keep(j.out.Flush())
	}
}

func (j *journal) acknowledgeLocked(id identity, partition int32, offset int64) {
	e := &j.keys[id.key][id.seq]
	e.partition, e.offset = partition, offset
	j.acknowledged++
	_, err := fmt.Fprintf(j.out, "%d %d %s %d %08x\n", partition, offset, keyName(id.writer, id.key), id.seq, e.crc)
	j.keep(err)
}

// acknowledgeAll is the acknowledgement of a client that names no offsets.
func (j *journal) acknowledgeAll() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, entries := range j.keys {
		for seq, e := range entries {
			if e.offset == offsetPending {
				j.acknowledgeLocked(identity{j.writer, key, seq}, -1, offsetAnywhere)
			}
		}
	}
}

// fail notes an error that the client reported for one record.
func (j *journal) fail(id identity, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return
	}
	j.keys[id.key][id.seq].offset = offsetFailed
	j.complainLocked(fmt.Sprintf("record %v: %v", id, err))
}

// complain notes an error of the client as such.
func (j *journal) complain(text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.complainLocked(text)
}

func (j *journal) complainLocked(text string) {
	j.failed++
	if len(j.errors) < maxExamples {
		j.errors = append(j.errors, text)
	}
}

func (j *journal) keep(err error) {
	if err != nil && j.fileErr == nil {
		j.fileErr = fmt.Errorf("journal of writer %s: %w", j.writer, err)
	}
}

func (j *journal) counts() (sent, acknowledged, failed int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.sent, j.acknowledged, j.failed
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != nil {
		j.keep(j.out.Flush())
		j.keep(j.file.Close())
		j.file = nil
	}
	return j.fileErr
}
