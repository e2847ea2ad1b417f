package brokeragent

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"

	"portage/brokeragent/control"
)

// serveRetained lists what this broker keeps of partitions it does not serve: trash and quarantine.
func (a *Agent) serveRetained(w http.ResponseWriter, _ *http.Request) error {
	copies, err := a.native.Trash().Copies()
	if err != nil {
		return control.Errorf(control.CodeStorage, "the retained copies could not be listed: %v", err)
	}
	return writeJSON(w, control.RetainedCopies{Copies: copies})
}

// holdTrash keeps a former copy from being swept and adopted, or lets it go.
func (a *Agent) holdTrash(_ context.Context, req control.HoldRequest) (struct{}, error) {
	return struct{}{}, a.native.Trash().Hold(req.ID, req.Hold)
}

// purgeQuarantine deletes a quarantined copy: the records that only it holds are gone then.
func (a *Agent) purgeQuarantine(_ context.Context, req control.QuarantinePurge) (struct{}, error) {
	if !req.AcceptLoss {
		return struct{}{}, control.Errorf(control.CodeBadRequest, "the copy holds records that are nowhere else: export them, then say acceptLoss")
	}
	return struct{}{}, a.native.Trash().PurgeQuarantine(req.ID)
}

// serveQuarantine streams the records that only a quarantined copy holds, one JSON object a line. A failure after the first
// line cuts the stream short; the reader sees that its last line is missing its end.
func (a *Agent) serveQuarantine(w http.ResponseWriter, r *http.Request) error {
	records, err := a.native.Trash().Export(r.PathValue("id"))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := bufio.NewWriterSize(w, 64<<10)
	encoder := json.NewEncoder(out)
	err = records(func(record control.ExportedRecord) error {
		if err := r.Context().Err(); err != nil {
			return err
		}
		return encoder.Encode(record)
	})
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		a.logger.Error("exporting a quarantined copy", "copy", r.PathValue("id"), "error", err)
		panic(http.ErrAbortHandler) // the client sees a broken stream, never a short one that looks whole
	}
	return nil
}
