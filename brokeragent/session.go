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
	cancelCopy context.CancelFunc
	process    uuid.UUID // the source process the staged bytes were last checked against
	mismatches int
	reserved   int64
	sourceURL  string // where the source was last said to be; it may come back elsewhere
}

// sessionRecord is what sessions/<move id>.json keeps.
type sessionRecord struct {
	Subject   control.Subject `json:"subject"`
	Source    string          `json:"source"`
	SourceURL string          `json:"sourceUrl"`
	Token     control.Token   `json:"token"`
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

// open opens the staging: what this move staged before, else a former copy of the partition taken out of trash, else an
// empty one. It reads and checks every byte that is there, long before anything is frozen. The caller holds work.
func (s *session) open() (adopted bool, err error) {
	s.mu.Lock()
	already := s.staging
	s.mu.Unlock()
	if already != nil && already.Failed() == nil {
		return false, nil
	}
	dir := s.stagingDir()
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if _, adopted, err = s.agent.native.Trash().Adopt(s.record.Subject.TopicID, s.record.Subject.Partition, dir); err != nil {
			return false, fmt.Errorf("take over the former copy: %w", err)
		}
	}
	staging, err := seglog.OpenStaging(dir, seglog.Identity{TopicID: s.record.Subject.TopicID, Topic: s.record.Subject.Topic, Partition: s.record.Subject.Partition}, s.agent.cfg.Log)
	if err != nil {
		return adopted, err
	}
	s.mu.Lock()
	s.staging, s.process = staging, uuid.Nil // nothing is trusted until compared with the source
	s.mu.Unlock()
	return adopted, nil
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
		return nil, control.Errorf(control.CodeNotFound, "this broker has no copy session of move %s", id)
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
	if err := durable.WriteJSON(all.recordPath(req.MoveID), record); err != nil {
		return nil, control.Errorf(control.CodeStorage, "the copy session could not be recorded: %v", err)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if s := all.byID[req.MoveID]; s != nil {
		s.record = record
		s.sourceAt(record.SourceURL)
		return s, nil
	}
	return all.add(record), nil
}

// end forgets a session whose staging is gone: installed, in trash or deleted.
func (all *sessions) end(id string) {
	all.mu.Lock()
	defer all.mu.Unlock()
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
	s.mu.Lock()
	end := int64(0) // a staged copy never held more than its source had durable
	s.mu.Unlock()
	return all.agent.native.Trash().Keep(s.stagingDir(), native.Retained{TopicID: subject.TopicID, Topic: subject.Topic, Partition: subject.Partition,
		Epoch: subject.Epoch, End: end, Reason: reason, MoveID: subject.MoveID, At: time.Now()})
}

// ensure makes this broker ready to receive a copy: the place is vacant, the room is there for this move and all others
// in flight, what was staged before is opened.
//
// This process dies anywhere in it: repeated. The reply is lost: repeated.
func (a *Agent) ensure(ctx context.Context, req control.EnsureRequest) (control.EnsureAnswer, error) {
	var none control.EnsureAnswer
	if err := a.admit(req.Order); err != nil {
		return none, err
	}
	if err := a.native.Refresh(ctx, req.Subject); err != nil {
		return none, control.Errorf(control.CodeMetastoreAway, "the metastore does not answer: %v", err)
	}
	a.sessions.putAway() // an earlier move's staging of this partition becomes adoptable
	if err := a.native.Vacant(req.Subject); err != nil {
		return none, err
	}
	list, err := a.listing(ctx, req.SourceURL, req.Subject)
	if err != nil {
		return none, err
	}
	var total int64
	for _, seg := range list.Segments {
		total += seg.Size
	}
	s, err := a.sessions.begin(req)
	if err != nil {
		return none, err
	}
	s.work.Lock()
	defer s.work.Unlock()
	adopted, err := s.open()
	if err != nil {
		return none, control.Errorf(control.CodeStorage, "the staging of %s/%d can not be opened: %v", req.Topic, req.Partition, err)
	}
	staged := s.staging.Bytes()
	need := total + total/10
	_, free, err := a.root.disk()
	if err != nil {
		return none, err
	}
	if room := free - a.sessions.reserved(req.MoveID) - diskFloorBytes; max(0, need-staged) > room {
		return none, control.Errorf(control.CodeNoRoom, "%s/%d needs %d MiB on %s, which has room for %d MiB beside the moves in flight; free space or choose another broker",
			req.Topic, req.Partition, (need-staged)>>20, a.cfg.BrokerID, max(0, room)>>20)
	}
	s.limit.set(req.LimitPerSec)
	s.mu.Lock()
	s.reserved = need
	s.mu.Unlock()
	s.update(func(st *control.SessionStatus) { st.BytesDone, st.BytesTotal = min(staged, total), total })
	return control.EnsureAnswer{StagedBytes: staged, TotalBytes: total, Adopted: adopted, ReservedByte: need}, nil
}

// diskFloorBytes stays free on every broker, so that staging never starves the partitions it owns.
const diskFloorBytes = 64 << 20

// startCopy starts or joins the copy and returns at once.
func (a *Agent) startCopy(_ context.Context, req control.CopyRequest) (control.SessionStatus, error) {
	if err := a.admit(req.Order); err != nil {
		return control.SessionStatus{}, err
	}
	s, err := a.sessions.get(req.MoveID)
	if err != nil {
		return control.SessionStatus{}, err
	}
	s.limit.set(req.LimitPerSec)
	s.sourceAt(req.SourceURL)
	s.mu.Lock()
	running := s.cancelCopy != nil
	if !running {
		ctx, cancel := context.WithCancel(a.ctx)
		s.cancelCopy = cancel
		s.status.State, s.status.Error, s.status.Passes = control.CopyRunning, nil, 0
		a.work.Go(func() {
			s.copy(ctx, req)
			cancel()
			s.mu.Lock()
			s.cancelCopy = nil
			s.mu.Unlock()
		})
	}
	s.mu.Unlock()
	status, _ := s.snapshot()
	return status, nil
}

// drain fetches the tail of the frozen source, compares all digests and installs the copy. It is not throttled.
//
// This process dies before the install's rename: the staging is resumed by the next attempt. After it: the installed
// copy is found at boot and waits for the commit. The reply is lost: a repeat answers from the installed copy, for exactly
// this freeze's version (R7).
func (a *Agent) drain(ctx context.Context, req control.DrainRequest) (control.DrainAnswer, error) {
	var none control.DrainAnswer
	if err := a.admit(req.Order); err != nil {
		return none, err
	}
	s, err := a.sessions.get(req.MoveID)
	if err != nil {
		return none, err
	}
	s.stopCopy()
	s.sourceAt(req.SourceURL)
	s.work.Lock()
	defer s.work.Unlock()
	answer := control.DrainAnswer{Version: req.Freeze.Version, InstalledEnd: req.Freeze.FrozenEnd, Storage: a.root.identity.Storage}
	if installed, same := a.native.InstalledFor(req.Subject, req.Freeze.Version); installed != nil && same {
		answer.InstalledEnd, answer.Version = installed.End, installed.Version
		return answer, nil
	}
	faults.Point("drain.before")
	if taken, err := a.native.Uninstall(ctx, req.Subject, s.stagingDir()); err != nil {
		return none, err
	} else if taken {
		s.mu.Lock()
		s.staging = nil
		s.mu.Unlock()
	}
	if _, err := s.open(); err != nil {
		return none, control.Errorf(control.CodeStorage, "the staging of %s/%d can not be opened: %v", req.Topic, req.Partition, err)
	}
	list, err := a.listing(ctx, req.SourceURL, req.Subject)
	if err != nil {
		return none, err
	}
	if list.FrozenVersion != req.Freeze.Version || list.Process != req.Freeze.Process || list.HighWatermark != req.Freeze.FrozenEnd {
		return none, control.Errorf(control.CodeNotFrozen, "%s/%d is not frozen at version %d any more: freeze it again", req.Topic, req.Partition, req.Freeze.Version)
	}
	tail, err := s.pull(ctx, list, nil)
	if err != nil {
		return none, err
	}
	if err := s.staging.Sync(ctx); err != nil {
		return none, control.Errorf(control.CodeStorage, "the tail could not be made durable: %v", err)
	}
	faults.Point("install.before")
	marker := native.Installed{MoveID: req.MoveID, Version: req.Freeze.Version, End: req.Freeze.FrozenEnd, From: s.record.Source}
	if err := a.native.Install(ctx, req.Subject, s.staging, marker, list); err != nil {
		return none, control.Errorf(control.CodeStorage, "the copy of %s/%d could not be installed: %v", req.Topic, req.Partition, err)
	}
	s.mu.Lock()
	s.staging = nil // its folder is the partition's now
	s.mu.Unlock()
	s.update(func(st *control.SessionStatus) {
		st.Installed, st.BytesDone, st.BytesTotal = true, st.BytesTotal+tail, st.BytesTotal+tail
	})
	answer.TailBytes, answer.Groups, answer.Producers = tail, list.GroupCount, list.ProducerCount
	faults.Point("drain.after")
	return answer, nil
}

// abandon ends the destination's part of an aborted move. Bytes are deleted only when the move's own row says aborted.
func (a *Agent) abandon(ctx context.Context, req control.AbandonRequest) (struct{}, error) {
	var done struct{}
	if err := a.admit(req.Order); err != nil {
		return done, err
	}
	move, err := a.store.FindMove(ctx, req.MoveID)
	if err != nil {
		return done, control.Errorf(control.CodeMetastoreAway, "the metastore does not answer, so nothing is deleted: %v", err)
	}
	if move == nil || move.Ended() != "aborted" {
		return done, control.Errorf(control.CodeRowMoved, "move %s is not aborted; its copy is not touched", req.MoveID)
	}
	s, err := a.sessions.get(req.MoveID)
	if err != nil && control.CodeOf(err) != control.CodeNotFound {
		return done, err
	}
	staging := filepath.Join(a.cfg.Data, "staging", req.MoveID)
	if s != nil {
		s.close()
		s.work.Lock()
		defer s.work.Unlock()
	}
	if s != nil || !req.Keep { // without a session nobody would put the staging away
		if _, err := a.native.Uninstall(ctx, req.Subject, staging); err != nil {
			return done, err
		}
	}
	err = nil
	if !req.Keep {
		// The row was seen without the move before this order came: then its copy is in trash already.
		err = errors.Join(os.RemoveAll(staging), a.native.Trash().Drop(req.MoveID))
	} else if s != nil {
		err = a.sessions.keep(s, "move aborted")
	}
	if err != nil {
		return done, control.Errorf(control.CodeStorage, "the staged copy could not be put away: %v", err)
	}
	a.sessions.end(req.MoveID)
	return done, nil
}
