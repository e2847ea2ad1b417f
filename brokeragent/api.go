package brokeragent

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"portage/brokeragent/control"
	"portage/brokeragent/native"
	"portage/internal/durable"
)

// maxOrderBytes bounds the body of one order.
const maxOrderBytes = 8 << 20

// handler builds the control API. Authentication comes before everything but health and metrics, and before the fence.
func (a *Agent) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, serve := range a.routes() {
		mux.Handle(pattern, a.authenticated(serve))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", a.serveReady)
	mux.HandleFunc("GET /v1/openapi.yaml", serveOpenAPI)
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /debug/pprof/profile", a.authenticated(func(w http.ResponseWriter, r *http.Request) error { pprof.Profile(w, r); return nil }))
	mux.Handle("GET /debug/pprof/", a.authenticated(func(w http.ResponseWriter, r *http.Request) error { pprof.Index(w, r); return nil }))
	return mux
}

// requests are those to the control API that are being carried out. A server that is closed does not wait for those that
// outlast the drain, and nothing may begin or write once the data folder is another process's.
type requests struct {
	mu   sync.RWMutex // read-held by each
	over bool
}

func (q *requests) take(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q.mu.RLock()
		defer q.mu.RUnlock()
		if q.over {
			http.Error(w, "the agent is stopping", http.StatusServiceUnavailable)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// end waits for those under way and lets no more begin.
func (q *requests) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over = true
}

// routes is the whole of /v1; the OpenAPI file lists the same.
func (a *Agent) routes() map[string]func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/status":                        a.serveStatus,
		"GET /v1/rows":                          a.serveRows,
		"GET /v1/partitions/{topicID}/{number}": a.servePartition,
		"GET /v1/moves/{id}":                    a.serveSession,
		"POST /v1/moves/{id}/ensure":            answering(a.ensure),
		"POST /v1/moves/{id}/copy":              answering(a.startCopy),
		"POST /v1/moves/{id}/freeze":            answering(a.freeze),
		"POST /v1/moves/{id}/drain":             answering(a.drain),
		"POST /v1/moves/{id}/promote":           answering(a.promote),
		"POST /v1/moves/{id}/look":              answering(a.look),
		"POST /v1/moves/{id}/abandon":           answering(a.abandon),
		"POST /v1/moves/{id}/limit":             a.serveLimit,
		"GET /v1/copies/{id}/listing":           a.serveListing,
		"GET /v1/copies/{id}/digest":            a.serveDigest,
		"GET /v1/copies/{id}/bytes":             a.serveBytes,
		"POST /v1/offsets/commit":               answering(a.commitOffsets),
		"POST /v1/offsets/fetch":                answering(a.fetchOffsets),
		"POST /v1/trash/purge":                  answering(a.purgeTrash),
		"POST /v1/trash/hold":                   answering(a.holdTrash),
		"GET /v1/retained":                      a.serveRetained,
		"GET /v1/quarantine/{id}/records":       a.serveQuarantine,
		"POST /v1/quarantine/purge":             answering(a.purgeQuarantine),
	}
}

func (a *Agent) authenticated(serve func(http.ResponseWriter, *http.Request) error) http.Handler {
	want := []byte("Bearer " + a.cfg.Token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			writeError(w, control.Errorf(control.CodeUnauthorized, "the token is missing or wrong; agents and workers of a fleet share one --token-file"))
			return
		}
		if err := serve(w, r); err != nil {
			writeError(w, err)
		}
	})
}

func writeError(w http.ResponseWriter, err error) {
	refusal := asControl(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(refusal.HTTPStatus())
	_ = json.NewEncoder(w).Encode(refusal)
}

// asControl gives an error its stable code.
func asControl(err error) *control.Error {
	var refusal *control.Error
	switch {
	case errors.As(err, &refusal):
		return refusal
	case durable.NoRoom(err):
		return control.Errorf(control.CodeDiskFull, "%v", err)
	case errors.Is(err, unix.EIO), errors.Is(err, unix.EROFS):
		return control.Errorf(control.CodeStorage, "%v", err)
	}
	return control.Errorf(control.CodeInternal, "%v", err)
}

func writeJSON(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(v)
}

// answering turns a typed call into a handler: it reads the body strictly, so that a misspelt key is a refusal and never
// a default.
func answering[Q, A any](call func(context.Context, Q) (A, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		var req Q
		decoder := json.NewDecoder(io.LimitReader(r.Body, maxOrderBytes))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&req); err != nil {
			return control.Errorf(control.CodeBadRequest, "the body is not the JSON this call takes: %v", err)
		}
		if ordered, ok := any(req).(interface{ Move() string }); ok && ordered.Move() != r.PathValue("id") {
			return control.Errorf(control.CodeBadRequest, "the path names move %q, the body %q", r.PathValue("id"), ordered.Move())
		}
		answer, err := call(r.Context(), req)
		if err != nil {
			return err
		}
		return writeJSON(w, answer)
	}
}

// admit checks an order: complete, and not older than what was seen.
func (a *Agent) admit(o control.Order) error {
	if o.MoveID == "" || o.TopicID == uuid.Nil {
		return control.Errorf(control.CodeBadRequest, "an order names its move and its partition")
	}
	if !a.registered.Load() {
		return control.Errorf(control.CodeMetastoreAway, "this agent is not registered with the metastore yet")
	}
	if o.ControllerEpoch <= 0 || o.ControllerID == "" || o.Token == (control.Token{}) {
		if !a.cfg.AllowUnfenced {
			return control.Errorf(control.CodeUnfenced, "an order carries controller epoch, controller id and token")
		}
		a.unfenced.Inc()
		return nil
	}
	return a.fence.admit(o, func() bool {
		ctx, cancel := context.WithTimeout(a.ctx, lookBound)
		defer cancel()
		if err := a.native.Refresh(ctx, o.Subject); err != nil {
			return false
		}
		moving, _ := a.native.MovingNow(o.Subject)
		return moving == o.MoveID
	})
}

func (a *Agent) serveReady(w http.ResponseWriter, _ *http.Request) {
	if ready, why := a.ready(); !ready {
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

func (a *Agent) ready() (bool, string) {
	if !a.registered.Load() {
		return false, "not registered with the metastore yet"
	}
	return a.native.Settled()
}

func (a *Agent) serveStatus(w http.ResponseWriter, _ *http.Request) error {
	ready, why := a.ready()
	total, free, err := a.root.disk()
	if err != nil {
		return err
	}
	held := a.fence.current()
	status := control.AgentStatus{Broker: a.cfg.BrokerID, NodeID: a.cfg.NodeID, Fleet: a.root.fleet(), Storage: a.root.identity.Storage, Process: a.process,
		Version: a.cfg.Version, Ready: ready, NotReady: why, ControllerEpoch: held.ControllerEpoch, ControllerID: held.ControllerID,
		DiskTotalBytes: total, DiskFreeBytes: free, ReservedBytes: a.sessions.reserved(""), TrashBytes: a.native.Trash().Bytes(), Moves: a.sessions.ids(), Clock: time.Now()}
	status.FileLimit, status.OpenFiles = fileLimits()
	status.Quarantined, status.QuarantinedRecs = a.quarantined()
	for _, p := range a.native.Partitions() {
		status.Partitions = append(status.Partitions, p.Status())
	}
	return writeJSON(w, status)
}

func (a *Agent) servePartition(w http.ResponseWriter, r *http.Request) error {
	id, err := uuid.Parse(r.PathValue("topicID"))
	if err != nil {
		return control.Errorf(control.CodeBadRequest, "%q is not a topic id", r.PathValue("topicID"))
	}
	number, err := strconv.ParseInt(r.PathValue("number"), 10, 32)
	if err != nil {
		return control.Errorf(control.CodeBadRequest, "%q is not a partition number", r.PathValue("number"))
	}
	p, err := a.native.Lookup(id, int32(number))
	if err != nil {
		return control.Errorf(control.CodeNotFound, "%v", err)
	}
	return writeJSON(w, p.StatusWithLags(time.Now()))
}

func (a *Agent) freeze(ctx context.Context, req control.FreezeRequest) (control.FreezeAnswer, error) {
	if err := a.admit(req.Order); err != nil {
		return control.FreezeAnswer{}, err
	}
	return a.native.Freeze(ctx, req)
}

// lookBound is how long one look waits for an opening; the caller asks again.
const lookBound = 2 * time.Second

// look reads the row and acts on it, at the source and at the destination alike.
func (a *Agent) look(ctx context.Context, req control.LookRequest) (control.PartitionStatus, error) {
	var none control.PartitionStatus
	// A look is a hint and changes nothing by itself: a committed move is finished under whichever controller.
	if err := a.admit(req.Order); err != nil && control.CodeOf(err) != control.CodeStaleController {
		return none, err
	}
	if err := a.native.Refresh(ctx, req.Subject); err != nil {
		return none, control.Errorf(control.CodeMetastoreAway, "the metastore does not answer: %v", err)
	}
	if req.Release {
		a.native.Release(req.Subject)
		a.fence.forget(req.MoveID)
	}
	p := a.native.Look(req.Subject)
	if p == nil {
		return none, control.Errorf(control.CodeNotFound, "%s/%d is not on this broker", req.Topic, req.Partition)
	}
	deadline := time.Now().Add(lookBound)
	for {
		changed, status := p.Changed()
		settled := status.State == string(native.StateOpen) || status.State == string(native.StateClosed) || status.State == string(native.StateGone) ||
			(status.State == string(native.StateElsewhere) && status.Owner != a.cfg.BrokerID && !p.Redirecting())
		if !req.WaitOpen || settled {
			return status, nil
		}
		timer := time.NewTimer(time.Until(deadline))
		select {
		case <-changed:
			timer.Stop()
		case <-timer.C:
			return status, nil
		case <-ctx.Done():
			timer.Stop()
			return status, ctx.Err()
		}
	}
}

func (a *Agent) commitOffsets(ctx context.Context, req control.OffsetsRequest) (control.OffsetsAnswer, error) {
	return a.native.CommitHere(ctx, req.Group, req.Offsets), nil
}

func (a *Agent) fetchOffsets(_ context.Context, req control.OffsetsRequest) (control.OffsetsAnswer, error) {
	return a.native.OffsetsHere(context.Background(), req.Group, req.Offsets), nil
}

func (a *Agent) purgeTrash(ctx context.Context, req control.TrashPurge) (control.PurgeAnswer, error) {
	if req.ID != "" {
		if !req.AcceptLoss {
			return control.PurgeAnswer{}, control.Errorf(control.CodeBadRequest, "one copy is deleted without proof only with acceptLoss")
		}
		err := a.native.Trash().PurgeTrash(req.ID)
		return control.PurgeAnswer{Deleted: 1}, err
	}
	return a.native.Trash().Sweep(ctx, 0)
}

// subjectOf reads the partition a copy request is about.
func subjectOf(r *http.Request) (control.Subject, error) {
	query := r.URL.Query()
	id, err := uuid.Parse(query.Get("topicId"))
	if err != nil {
		return control.Subject{}, control.Errorf(control.CodeBadRequest, "topicId is missing or no id")
	}
	partition, err := intParam(r, "partition", 32)
	if err != nil {
		return control.Subject{}, err
	}
	epoch, err := intParam(r, "epoch", 32)
	if err != nil {
		return control.Subject{}, err
	}
	return control.Subject{MoveID: r.PathValue("id"), TopicID: id, Partition: int32(partition), Epoch: int32(epoch), Topic: strings.TrimSpace(query.Get("topic"))}, nil
}

func intParam(r *http.Request, name string, bits int) (int64, error) {
	n, err := strconv.ParseInt(r.URL.Query().Get(name), 10, bits)
	if err != nil || n < 0 {
		return 0, control.Errorf(control.CodeBadRequest, "%s is missing or no number", name)
	}
	return n, nil
}
