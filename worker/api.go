package worker

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"portage/internal/operate"
	"portage/metastore"
	"portage/planner"
)

const (
	// maxOrderBytes bounds the body of one order; a longer one is refused unread.
	maxOrderBytes = 1 << 20
	// callBound is how long a call may take that waits for nothing but an answer; beginBound how long a start is waited for that
	// may still be refused; planBound how long a plan is. MostWait is the longest wait for a verdict that a caller may ask for.
	callBound  = 15 * time.Second
	beginBound = 20 * time.Second
	planBound  = 40 * time.Second
	MostWait   = time.Minute
	// longest is more than any call takes, so that only a client that does not read is cut off.
	longest = MostWait + 2*callBound + 5*time.Second
)

// Codes of the API that no order ends with.
const (
	codeUnauthorized = "unauthorized"
	codeBadRequest   = "bad_request"
	codeTooLarge     = "too_large"
	codeNoSuchCall   = "no_such_call"
	codeTimedOut     = "timed_out"
	codeInternal     = "internal"
)

// Refusal is the body of everything that was not done. Code is stable; Message is a sentence for people.
type Refusal struct {
	Code     string              `json:"code"`
	Message  string              `json:"message"`
	Refusals []planner.Objection `json:"refusals,omitempty"` // all that stand against it, where there are several

	status int
}

func (e *Refusal) Error() string { return e.Message }

func badRequest(format string, args ...any) error {
	return &Refusal{Code: codeBadRequest, Message: fmt.Sprintf(format, args...), status: http.StatusBadRequest}
}

// api is the worker's HTTP API: the orders of the command line, for programs.
type api struct {
	fleet  *operate.Fleet
	token  string
	logger *slog.Logger
}

// reply is a body with its status.
type reply struct {
	status int
	body   any
}

type call func(http.ResponseWriter, *http.Request) (reply, error)

// handler builds the API. Authentication comes before everything but the description of the API itself.
func (a *api) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, serve := range a.routes() {
		mux.Handle(pattern, a.authenticated(serve))
	}
	mux.HandleFunc("GET /openapi.yaml", serveOpenAPI)
	mux.Handle("/", a.authenticated(func(_ http.ResponseWriter, r *http.Request) (reply, error) {
		return reply{}, &Refusal{Code: codeNoSuchCall, Message: fmt.Sprintf("there is no %s %s; GET /openapi.yaml lists all calls", r.Method, r.URL.Path), status: http.StatusNotFound}
	}))
	return mux
}

func (a *api) authenticated(serve call) http.Handler {
	want := []byte("Bearer " + a.token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			a.refuse(w, r, &Refusal{Code: codeUnauthorized, Message: "the token is missing or wrong; send the content of the fleet's --token-file as Authorization: Bearer ...", status: http.StatusUnauthorized})
			return
		}
		answer, err := serve(w, r)
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		writeJSON(w, answer.status, answer.body)
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (a *api) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e := refusalOf(err)
	if e.status == http.StatusInternalServerError {
		a.logger.Error("a call of the HTTP API failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	if e.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	writeJSON(w, e.status, e)
}

// refusalOf gives an error its stable code and its status.
func refusalOf(err error) *Refusal {
	var own *Refusal
	var order *operate.Error
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &order):
		status := http.StatusConflict
		switch order.Kind {
		case operate.Invalid:
			status = http.StatusBadRequest
		case operate.NotFound:
			status = http.StatusNotFound
		case operate.Unreachable:
			status = http.StatusServiceUnavailable
		}
		return &Refusal{Code: order.Code, Message: order.Message, Refusals: order.Refusals, status: status}
	case errors.As(err, &long):
		return &Refusal{Code: codeTooLarge, Message: fmt.Sprintf("the body is longer than %d bytes", long.Limit), status: http.StatusRequestEntityTooLarge}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &Refusal{Code: codeTimedOut, Message: "it took too long, so nothing is known of it; look at its status, or ask again", status: http.StatusServiceUnavailable}
	}
	return &Refusal{Code: codeInternal, Message: err.Error(), status: http.StatusInternalServerError}
}

// ask is a call that changes nothing. It takes the parameters that are named: a misspelt one is a refusal and never a default.
func ask(bound time.Duration, answer func(context.Context, *http.Request) (reply, error), parameters ...string) call {
	return func(_ http.ResponseWriter, r *http.Request) (reply, error) {
		for name := range r.URL.Query() {
			if !slices.Contains(parameters, name) {
				return reply{}, badRequest("there is no parameter %q here; GET /openapi.yaml lists those there are", name)
			}
		}
		ctx, cancel := context.WithTimeout(r.Context(), bound)
		defer cancel()
		return answer(ctx, r)
	}
}

// change is a call that changes something: it says who asked and why, both stand in the audit before it is carried out.
func change[Q any](a *api, name string, parse func([]byte) (Q, error), do func(context.Context, *http.Request, Q) (reply, error)) call {
	return func(w http.ResponseWriter, r *http.Request) (reply, error) {
		raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxOrderBytes))
		if err != nil {
			if errors.As(err, new(*http.MaxBytesError)) {
				return reply{}, err
			}
			return reply{}, badRequest("the body could not be read: %v", err)
		}
		order, err := parse(raw)
		if err != nil {
			if errors.As(err, new(*Refusal)) {
				return reply{}, err
			}
			return reply{}, badRequest("%v", err)
		}
		var asked struct{ By, Reason string }
		if err := json.Unmarshal(raw, &asked); err != nil {
			return reply{}, badRequest("the body is not the JSON this call takes: %v", err)
		}
		switch {
		case strings.TrimSpace(asked.Reason) == "":
			return reply{}, &Refusal{Code: operate.CodeReasonMissing, Message: `say why: {"reason":"..."}; the audit keeps it`, status: http.StatusBadRequest}
		case strings.TrimSpace(asked.By) == "":
			return reply{}, &Refusal{Code: operate.CodeByMissing, Message: `say who asks: {"by":"..."}; the audit keeps it`, status: http.StatusBadRequest}
		}
		what, err := json.Marshal(map[string]any{"path": r.URL.Path, "order": order, "from": r.RemoteAddr})
		if err != nil || bytes.Contains(what, []byte(`\u0000`)) {
			return reply{}, badRequest("the body has a character that no text may have")
		}
		ctx, cancel := context.WithTimeout(r.Context(), planBound+callBound)
		defer cancel()
		if err := a.fleet.Record(ctx, metastore.Order{Action: "http_" + name, By: asked.By, Reason: asked.Reason, What: json.RawMessage(what)}); err != nil {
			return reply{}, err
		}
		return do(ctx, r, order)
	}
}

// strictly reads one JSON object: a misspelt key is a refusal and never a default.
func strictly[Q any](raw []byte) (Q, error) {
	var q Q
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&q); err != nil {
		return q, badRequest("the body is not the JSON this call takes: %v", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return q, badRequest("the body has something behind its JSON object")
	}
	return q, nil
}

// repeatOf says that a start that is repeated joins what it started before.
func repeatOf(r *http.Request) operate.Repeat {
	return operate.Repeat{Join: true, Key: r.Header.Get("Idempotency-Key")}
}

// serveAPI serves the API until stop is called, which lets calls that are being answered end.
func serveAPI(cfg Config) (stop func(), err error) {
	if cfg.HTTPListen == "" {
		return func() {}, nil
	}
	if cfg.Token == "" {
		return nil, errors.New("--http-listen needs a token: the API moves data, so it is not served to everybody; give --token-file")
	}
	listener, err := net.Listen("tcp", cfg.HTTPListen)
	if err != nil {
		return nil, fmt.Errorf("--http-listen %s: %w", cfg.HTTPListen, err)
	}
	secure, err := secured(listener, cfg.HTTPCert, cfg.HTTPKey)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	a := &api{token: cfg.Token, logger: cfg.Logger, fleet: cfg.fleet()}
	waits, endWaits := context.WithCancel(context.Background())
	server := &http.Server{Handler: a.handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: longest, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, BaseContext: func(net.Listener) context.Context { return waits }}
	cfg.Logger.Info("the HTTP API is up", "listen", listener.Addr().String())
	if cfg.Listening != nil {
		cfg.Listening("http", listener.Addr().String())
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(secure); !errors.Is(err, http.ErrServerClosed) {
			cfg.Logger.Error("the HTTP API stopped", "error", err)
		}
	}()
	return func() {
		endWaits() // who waits for a verdict is told to ask again, elsewhere
		ctx, cancel := context.WithTimeout(context.Background(), stopFor)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
		<-ended
	}, nil
}
