package brokeragent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"portage/brokeragent/control"
	"portage/brokeragent/native"
	"portage/brokeragent/native/seglog"
	"portage/internal/durable"
	"portage/internal/faults"
)

// session is the destination's side of one move. What must survive this process is on disk: the staged segments, and the
// record that says whose they are.
type session struct {
	agent  *Agent
	record sessionRecord
	limit  *throttle

	work sync.Mutex // held by whoever touches the staging: the copy, the drain, the end

	mu         sync.Mutex // guards everything below
	staging    *seglog.Staging
	status     control.SessionStatus
	changed    chan struct{}
	ended      bool // put away or dropped: it stages nothing any more
	cancelCopy context.CancelFunc
	process    uuid.UUID // the source process the staged bytes were last checked against
	mismatches int
	reserved   int64
	sourceURL  string // where the source was last said to be; it may come back elsewhere
	seen       *seen  // the last look at the source; nil before the first
}

// sessionRecord is what sessions/<move id>.json keeps.
type sessionRecord struct {
	Subject   control.Subject `json:"subject"`
	Source    string          `json:"source"`
	SourceURL string          `json:"sourceUrl"`
	Token     control.Token   `json:"token"`
	// LimitPerSec is a pace an operator set while the move ran; nil leaves it to the orders. Orders that repeat what the
	// move was started with do not undo it.
	LimitPerSec *float64 `json:"limitBytesPerSec,omitempty"`
	// Adopted is the former copy that the staging was begun with; an aborted move gives it back to trash.
	Adopted *native.Retained `json:"adopted,omitempty"`
}

var moveID = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,200}$`)

func (s *session) stagingDir() string {
	return filepath.Join(s.agent.cfg.Data, "staging", s.record.Subject.MoveID)
}

// update changes the status and wakes whoever waits for a change.
func (s *session) update(change func(*control.SessionStatus)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
	s.status.Seq++
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *session) snapshot() (control.SessionStatus, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status, s.changed
}

// source is where the source's bytes are fetched.
func (s *session) source() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sourceURL
}

// sourceAt takes the source's address from the newest order.
func (s *session) sourceAt(url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if url != "" {
		s.sourceURL = url
	}
}

// open opens the staging: what this move staged before, else a former copy of the partition that the source's listing proves
// to be a part of its history, taken out of trash, else an empty one. It reads and checks every byte that is there, long before anything is frozen. The caller holds work.
func (s *session) open(source *control.Listing) (adopted bool, err error) {
	s.mu.Lock()
	already, ended := s.staging, s.ended
	s.mu.Unlock()
	if ended {
		return false, noSession(s.record.Subject.MoveID)
	}
	if already != nil && already.Failed() == nil {
		return false, nil
	}
	if already != nil {
		_ = already.Close()
	}
	dir := s.stagingDir()
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && source != nil {
		if _, adopted, err = s.agent.native.Trash().Adopt(s.record.Subject.TopicID, s.record.Subject.Partition, dir, *source, s.remember); err != nil {
			return false, fmt.Errorf("take over the former copy: %w", err)
		}
	}
	staging, err := seglog.OpenStaging(dir, seglog.Identity{TopicID: s.record.Subject.TopicID, Topic: s.record.Subject.Topic, Partition: s.record.Subject.Partition}, s.agent.cfg.Log)
	if err != nil {
		return adopted, err
	}
	before, err := readSeen(dir)
	if err != nil {
		_ = staging.Close()
		return adopted, err
	}
	s.mu.Lock()
	s.staging, s.process = staging, uuid.Nil // nothing is trusted until compared with the source
	s.seen = before
	s.mu.Unlock()
	return adopted, nil
}

// pace applies what the move's orders ask for, unless an operator has set a pace since.
func (s *session) pace(orderedPerSec float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record.LimitPerSec != nil {
		orderedPerSec = *s.record.LimitPerSec
	}
	s.limit.set(orderedPerSec)
}

// setPace changes the pace of a running copy; it outlives this process.
func (s *session) setPace(perSec float64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	record := s.record
	record.LimitPerSec = &perSec
	if err := durable.WriteJSON(s.agent.sessions.recordPath(record.Subject.MoveID), record); err != nil {
		return err
	}
	s.record.LimitPerSec = &perSec
	s.limit.set(perSec)
	return nil
}

// remember keeps the record of the former copy that is about to be taken over.
func (s *session) remember(r native.Retained) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.Adopted = &r
	return durable.WriteJSON(s.agent.sessions.recordPath(s.record.Subject.MoveID), s.record)
}

// close stops the copy and lets go of the staging; the files stay.
func (s *session) close() {
	s.stopCopy()
	s.work.Lock()
	defer s.work.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.staging != nil {
		_ = s.staging.Close()
		s.staging = nil
	}
}

func (s *session) stopCopy() {
	s.mu.Lock()
	cancel := s.cancelCopy
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

func noSession(id string) *control.Error {
	return control.Errorf(control.CodeNotFound, "this broker has no copy session of move %s", id)
}

// sessions are the moves this agent is the destination of.
type sessions struct {
	agent *Agent
	mu    sync.Mutex
	byID  map[string]*session
}

// reserved is the room promised to all moves in flight but one.
func (all *sessions) reserved(except string) int64 {
	all.mu.Lock()
	defer all.mu.Unlock()
	var total int64
	for id, s := range all.byID {
		if id != except {
			s.mu.Lock()
			total += max(0, s.reserved-s.status.BytesDone)
			s.mu.Unlock()
		}
	}
	return total
}

func (all *sessions) ids() []string {
	all.mu.Lock()
	defer all.mu.Unlock()
	ids := make([]string, 0, len(all.byID))
	for id := range all.byID {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	return ids
}

func (all *sessions) recordPath(id string) string {
	return filepath.Join(all.agent.cfg.Data, "sessions", id+".json")
}

// get finds a session, bringing it back from disk after a restart.
func (all *sessions) get(id string) (*session, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if s := all.byID[id]; s != nil {
		return s, nil
	}
	if !moveID.MatchString(id) {
		return nil, control.Errorf(control.CodeBadRequest, "%q is not a move id", id)
	}
	var record sessionRecord
	if err := durable.ReadJSON(all.recordPath(id), &record); err != nil {
		return nil, noSession(id)
	}
	return all.add(record), nil
}

func (all *sessions) add(record sessionRecord) *session {
	s := &session{agent: all.agent, record: record, sourceURL: record.SourceURL, limit: newThrottle(0), changed: make(chan struct{}), status: control.SessionStatus{State: control.CopyIdle}}
	all.byID[record.Subject.MoveID] = s
	return s
}

// begin makes or finds the session of an order and keeps its record.
func (all *sessions) begin(req control.EnsureRequest) (*session, error) {
	if !moveID.MatchString(req.MoveID) {
		return nil, control.Errorf(control.CodeBadRequest, "%q is not a move id", req.MoveID)
	}
	record := sessionRecord{Subject: req.Subject, Source: req.Source, SourceURL: req.SourceURL, Token: req.Token}
	if known, err := all.get(req.MoveID); err == nil {
		return known, known.again(record)
	}
	if err := durable.WriteJSON(all.recordPath(req.MoveID), record); err != nil {
		return nil, control.Errorf(control.CodeStorage, "the copy session could not be recorded: %v", err)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if s := all.byID[req.MoveID]; s != nil { // begun at the same moment by the same order, repeated
		return s, nil
	}
	return all.add(record), nil
}

// again takes a repeated order's record, and keeps what was learnt since the first.
func (s *session) again(record sessionRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return noSession(record.Subject.MoveID)
	}
	record.LimitPerSec, record.Adopted = s.record.LimitPerSec, s.record.Adopted
	if err := durable.WriteJSON(s.agent.sessions.recordPath(record.Subject.MoveID), record); err != nil {
		return control.Errorf(control.CodeStorage, "the copy session could not be recorded: %v", err)
	}
	s.sourceURL = record.SourceURL // nothing else of a move's record ever changes
	return nil
}

// end forgets a session whose staging is gone: installed, in trash or deleted. An order that found the session before and
// waits for its turn is refused then, and makes no staging that nobody would put away. The caller holds the session's work.
func (all *sessions) end(id string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if s := all.byID[id]; s != nil {
		s.mu.Lock()
		s.ended = true
		s.mu.Unlock()
	}
	delete(all.byID, id)
	_ = os.Remove(all.recordPath(id))
	all.agent.fence.forget(id)
}

// recorded lists the sessions on disk.
func (all *sessions) recorded() []string {
	entries, err := os.ReadDir(filepath.Join(all.agent.cfg.Data, "sessions"))
	if err != nil {
		return nil
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".json"); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// putAway turns the staging of every move that no longer holds its partition into a former copy, which a retry adopts by
// digest (R23). Nothing is deleted: the row says only that the move is over, not how.
func (all *sessions) putAway() {
	if !faults.Enforced("R23") {
		return
	}
	for _, id := range all.recorded() {
		s, err := all.get(id)
		if err != nil {
			continue
		}
		moving, confirmed := all.agent.native.MovingNow(s.record.Subject)
		if !confirmed || moving == id {
			continue
		}
		all.putAwayOne(s, id)
	}
}

func (all *sessions) putAwayOne(s *session, id string) {
	s.close()
	s.work.Lock() // an order to abandon the move may be at the same folder
	defer s.work.Unlock()
	if err := all.keep(s, "move ended"); err != nil {
		all.agent.logger.Warn("putting a staged copy away", "move", id, "error", err)
		return
	}
	all.end(id)
}

// keep moves a session's staging to trash.
func (all *sessions) keep(s *session, reason string) error {
	if _, err := os.Stat(s.stagingDir()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	subject := s.record.Subject
	kept := native.Retained{TopicID: subject.TopicID, Topic: subject.Topic, Partition: subject.Partition, Epoch: subject.Epoch, Reason: reason, MoveID: subject.MoveID, At: time.Now()}
	if s.record.Adopted != nil {
		kept = *s.record.Adopted // it goes back as it was, with what the move added to it
	}
	last, err := readSeen(s.stagingDir())
	switch {
	case err != nil:
		return err
	case last != nil:
		// A staging never holds more than the last look listed (see seen), so that is where it ends at the most.
		kept.End, kept.Epochs = max(kept.End, last.HighWatermark), last.Epochs
	case s.record.Adopted == nil && hasSegments(s.stagingDir()):
		kept.End = -1 // staged by an agent that kept no look at the source: nothing is known of it
	}
	return all.agent.native.Trash().Keep(s.stagingDir(), kept)
}

func hasSegments(dir string) bool {
	found, err := filepath.Glob(filepath.Join(dir, "*.log"))
	return err != nil || len(found) > 0
}
