package brokeragent

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"portage/brokeragent/control"
)

// serveSession answers the progress of a move, waiting for a change after seq when asked to.
func (a *Agent) serveSession(w http.ResponseWriter, r *http.Request) error {
	s, err := a.sessions.get(r.PathValue("id"))
	if err != nil {
		return err
	}
	seq, _ := strconv.ParseInt(r.URL.Query().Get("seq"), 10, 64)
	wait, _ := time.ParseDuration(r.URL.Query().Get("wait"))
	timer := time.NewTimer(min(wait, 10*time.Second))
	defer timer.Stop()
	for {
		status, changed := s.snapshot()
		status.Copy = s.evidence()
		status.Installed = status.Installed || a.native.InstalledOf(s.record.Subject) != nil
		if status.Seq > seq {
			return writeJSON(w, status)
		}
		select {
		case <-changed:
		case <-timer.C:
			return writeJSON(w, status)
		case <-r.Context().Done():
			return nil
		}
	}
}

// serveLimit changes the throttle of a running copy.
func (a *Agent) serveLimit(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		BytesPerSec float64 `json:"bytesPerSec"`
	}
	decoder := json.NewDecoder(io.LimitReader(r.Body, maxOrderBytes))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&req); err != nil || req.BytesPerSec < 0 {
		return control.Errorf(control.CodeBadRequest, `give {"bytesPerSec": N} with N at least 0`)
	}
	s, err := a.sessions.get(r.PathValue("id"))
	if err != nil {
		return err
	}
	if err := s.setPace(req.BytesPerSec); err != nil {
		return err
	}
	return writeJSON(w, struct{}{})
}
