package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Ledger is the journals of all writers and consumers of one topic.
type Ledger struct {
	topic string
	dir   string

	mu        sync.Mutex // guards all below
	journals  []*journal
	writers   []*Writer
	kcats     []*KcatWriter
	consumers []*Consumer
}

// New keeps its journals in the folder, which is made when it is not there.
func New(dir, topic string) (*Ledger, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return &Ledger{topic: topic, dir: dir}, nil
}

// open makes the journal of a new writer.
func (l *Ledger) open(writer string, keys int) (*journal, error) {
	if writer == "" || strings.ContainsAny(writer, " :\n/") {
		return nil, fmt.Errorf("ledger: %q is no name for a writer; use letters, digits and dashes", writer)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.ContainsFunc(l.journals, func(j *journal) bool { return j.writer == writer }) {
		return nil, fmt.Errorf("ledger: there is a writer %s already", writer)
	}
	j, err := newJournal(filepath.Join(l.dir, l.topic+"."+writer+".journal"), writer, l.topic, keys)
	if err == nil {
		l.journals = append(l.journals, j)
	}
	return j, err
}

// Acknowledged is how many records have been acknowledged so far; ClientErrors how many errors producers reported.
func (l *Ledger) Acknowledged() (n int64) {
	for _, j := range l.snapshot() {
		_, acknowledged, _ := j.counts()
		n += acknowledged
	}
	return n
}

// ClientErrors is how many errors the writers' clients have reported so far.
func (l *Ledger) ClientErrors() (n int64) {
	for _, j := range l.snapshot() {
		_, _, failed := j.counts()
		n += failed
	}
	return n
}

func (l *Ledger) snapshot() []*journal {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.journals)
}

// LongestWait is the longest time a record of a paced writer waited for its acknowledgement.
func (l *Ledger) LongestWait() (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.writers {
		longest = max(longest, w.LongestWait())
	}
	return longest
}

// CloseWriters closes every writer; consumers read on. Records that the context leaves no time for are in flight.
func (l *Ledger) CloseWriters(ctx context.Context) error {
	l.mu.Lock()
	writers, kcats := slices.Clone(l.writers), slices.Clone(l.kcats)
	l.mu.Unlock()
	closed := make([]error, len(writers)+len(kcats))
	var all sync.WaitGroup
	for i, w := range writers {
		all.Go(func() { closed[i] = w.Close(ctx) })
	}
	for i, w := range kcats {
		all.Go(func() { closed[len(writers)+i] = w.Close(ctx) })
	}
	all.Wait()
	return errors.Join(closed...)
}

// Close closes every writer and consumer; closing twice is fine.
func (l *Ledger) Close(ctx context.Context) error {
	err := l.CloseWriters(ctx)
	l.mu.Lock()
	consumers := slices.Clone(l.consumers)
	l.mu.Unlock()
	for _, c := range consumers {
		c.Close()
	}
	return err
}
