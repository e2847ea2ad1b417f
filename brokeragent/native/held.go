package native

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"portage/internal/durable"
	"portage/metastore"
)

// heldFile keeps the newest row this agent has seen of every partition, and the topics they belong to. It opens nothing
// (R4); it proves what the metastore once said, so that an older metastore is recognised and can be put right (R1).
const heldFile = "rows.journal"

// heldRows is a journal of rows: one line a change, each with its checksum, rewritten whole when most of it is history.
// Appending is cheap and not durable; sync makes everything appended durable and is asked for before whatever must not be
// forgotten: an opening, a freeze, an install.
type heldRows struct {
	path   string
	logger *slog.Logger

	mu      sync.Mutex // guards everything below
	file    *os.File
	rows    map[key]*metastore.Assignment
	topics  map[uuid.UUID]metastore.Topic
	lines   int       // in the file
	written int64     // bytes appended since the start of this process
	failed  error     // of the last append; nothing more is acknowledged on what it could not keep
	tried   time.Time // when it was last tried to mend that

	syncing sync.Mutex // one fsync at a time; taken before mu
	synced  int64      // guarded by syncing
}

type heldLine struct {
	Row    *metastore.Assignment `json:"row,omitempty"`
	Topic  *metastore.Topic      `json:"topic,omitempty"`
	Forget *uuid.UUID            `json:"forget,omitempty"` // a topic that was deleted
}

var heldChecksum = crc32.MakeTable(crc32.Castagnoli)

// openHeld reads the journal. A torn last line is cut: nothing was done on it. Any other damage refuses to boot, since what
// it kept can not be told from what it lost.
func openHeld(root string, logger *slog.Logger) (*heldRows, error) {
	h := &heldRows{path: filepath.Join(root, heldFile), logger: logger, rows: map[key]*metastore.Assignment{}, topics: map[uuid.UUID]metastore.Topic{}}
	content, err := os.ReadFile(h.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for len(content) > 0 {
		line, rest, whole := bytes.Cut(content, []byte("\n"))
		if !whole {
			break
		}
		if err := h.read(line); err != nil {
			if len(rest) == 0 {
				break // the blocks of the last append came to the disk out of order
			}
			return nil, fmt.Errorf("%s is damaged at line %d; restore it from a backup, or move it away after `portage reconcile` has shown nothing to do: %w", h.path, h.lines+1, err)
		}
		h.lines++
		content = rest
	}
	return h, h.rewrite()
}

func (h *heldRows) read(line []byte) error {
	sum, text, ok := bytes.Cut(line, []byte(" "))
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if !ok || err != nil || uint32(want) != crc32.Checksum(text, heldChecksum) {
		return errors.New("the checksum does not match")
	}
	var l heldLine
	if err := json.Unmarshal(text, &l); err != nil {
		return err
	}
	h.take(l)
	return nil
}

// take applies one line to what is held in memory.
func (h *heldRows) take(l heldLine) {
	switch {
	case l.Row != nil:
		h.rows[key{l.Row.TopicID, l.Row.Partition}] = l.Row
	case l.Topic != nil:
		h.topics[l.Topic.ID] = *l.Topic
	case l.Forget != nil:
		delete(h.topics, *l.Forget)
		maps.DeleteFunc(h.rows, func(k key, _ *metastore.Assignment) bool { return k.topicID == *l.Forget })
	}
}

func encodeHeld(l heldLine) ([]byte, error) {
	text, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(text, heldChecksum), text), nil
}

// rewrite replaces the journal by what is held now. The caller holds mu, or is alone.
func (h *heldRows) rewrite() error {
	var all bytes.Buffer
	h.lines = 0
	add := func(l heldLine) error {
		line, err := encodeHeld(l)
		all.Write(line)
		h.lines++
		return err
	}
	for _, t := range h.topics {
		if err := add(heldLine{Topic: &t}); err != nil {
			return err
		}
	}
	for _, row := range h.rows {
		if err := add(heldLine{Row: row}); err != nil {
			return err
		}
	}
	if err := durable.WriteFile(h.path, all.Bytes()); err != nil {
		return err
	}
	file, err := os.OpenFile(h.path, os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	if h.file != nil {
		_ = h.file.Close()
	}
	h.file = file
	return nil
}

// keepRow appends a row that is newer than the one held.
func (h *heldRows) keepRow(row *metastore.Assignment) { h.append(heldLine{Row: row}) }

// keepTopic appends a topic when it is new or changed.
func (h *heldRows) keepTopic(t metastore.Topic) {
	h.mu.Lock()
	known, ok := h.topics[t.ID]
	h.mu.Unlock()
	if !ok || !sameTopic(known, t) {
		h.append(heldLine{Topic: &t})
	}
}

func sameTopic(a, b metastore.Topic) bool {
	return a.Name == b.Name && a.Partitions == b.Partitions && a.ReplicationFactor == b.ReplicationFactor && a.WritePolicy == b.WritePolicy &&
		a.ProducePolicy == b.ProducePolicy && a.Internal == b.Internal && maps.Equal(a.Config, b.Config)
}

// forget drops a topic whose deletion is proved.
func (h *heldRows) forget(topicID uuid.UUID) {
	h.mu.Lock()
	_, held := h.topics[topicID]
	for k := range h.rows {
		held = held || k.topicID == topicID
	}
	h.mu.Unlock()
	if held {
		h.append(heldLine{Forget: &topicID})
	}
}

func (h *heldRows) append(l heldLine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.take(l)
	if h.failed != nil {
		h.mend() // what was just taken is in it
		return
	}
	line, err := encodeHeld(l)
	if err == nil {
		_, err = h.file.Write(line)
	}
	if err != nil {
		h.logger.Error("the rows could not be kept; nothing opens or freezes until they can", "file", h.path, "error", err)
		h.failed = err
		return
	}
	h.lines++
	h.written += int64(len(line))
	if live := len(h.rows) + len(h.topics); h.lines > 1000+4*live {
		if err := h.rewrite(); err != nil {
			h.failed = err
		}
	}
}

// mendEvery bounds how often a journal that could not be written is tried again: it is written whole, under the lock of all
// rows.
const mendEvery = time.Second

// mend writes the whole journal again after a failure, so that no torn line stays in its middle. The caller holds mu.
func (h *heldRows) mend() {
	if time.Since(h.tried) < mendEvery {
		return
	}
	h.tried = time.Now()
	if err := h.rewrite(); err != nil {
		h.failed = err
		return
	}
	h.failed = nil
	h.logger.Info("the rows are kept again", "file", h.path)
}

// sync returns once everything appended before it is durable. One fsync serves all who wait.
func (h *heldRows) sync() error {
	h.mu.Lock()
	want := h.written
	h.mu.Unlock()
	h.syncing.Lock()
	defer h.syncing.Unlock()
	h.mu.Lock()
	if h.failed != nil {
		h.mend()
	}
	file, upTo, failed := h.file, h.written, h.failed
	h.mu.Unlock()
	if failed != nil {
		return failed
	}
	if h.synced >= want {
		return nil
	}
	// Closed: rewritten meanwhile, and the new file was durable before it took the place of this one.
	if err := file.Sync(); err != nil && !errors.Is(err, os.ErrClosed) {
		h.mu.Lock()
		h.failed = err
		h.mu.Unlock()
		return err
	}
	h.synced = upTo
	return nil
}

// all are the rows held and their topics.
func (h *heldRows) all() ([]*metastore.Assignment, map[uuid.UUID]metastore.Topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	rows := make([]*metastore.Assignment, 0, len(h.rows))
	for _, row := range h.rows {
		rows = append(rows, row)
	}
	return rows, maps.Clone(h.topics)
}

// topic is a topic held, also when the metastore does not know it (any more).
func (h *heldRows) topic(id uuid.UUID) (metastore.Topic, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, ok := h.topics[id]
	return t, ok
}

func (h *heldRows) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.file.Close()
}
