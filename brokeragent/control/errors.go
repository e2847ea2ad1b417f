package control

import (
	"errors"
	"fmt"
	"net/http"
)

// Stable codes of the control API. The activities map them to retryable or not in one place.
const (
	CodeUnauthorized    = "unauthorized"
	CodeUnfenced        = "unfenced"         // authority is missing
	CodeStaleController = "stale_controller" // a higher controller epoch, or a rival at the same one, was seen
	CodeStaleToken      = "stale_token"      // a later attempt of this move was seen
	CodeBadRequest      = "bad_request"
	CodeNotFound        = "not_found"
	CodeNotOwner        = "not_owner"
	CodeRowMoved        = "row_moved" // the row is not what the request says: read it again
	CodeNotOpen         = "not_open"  // the partition is not open here (yet)
	CodeNotFrozen       = "not_frozen"
	CodeFreezeTooLong   = "freeze_too_long" // R22
	CodeBusy            = "busy"            // a limit of this agent is reached; ask again later
	CodeNoRoom          = "too_little_room"
	CodeNotEmpty        = "destination_not_empty"
	CodeSourceAway      = "source_unreachable"
	CodeDigestMismatch  = "digest_mismatch"
	CodeSourceCorrupt   = "source_corrupt" // what the source sent is damaged on its disk
	CodeDiskFull        = "disk_full"
	CodeMetastoreAway   = "metastore_unreachable"
	CodeStorage         = "storage_failed"
	CodeTransferLimit   = "transfer_limit"
	CodeNotEligible     = "copy_not_eligible" // the staged copy can not be promoted; the message says what is missing
	CodeInternal        = "internal"
)

// Error is the JSON body of every refusal: a stable code and a sentence that says what to do.
type Error struct {
	Code    string         `json:"code"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Errorf builds an Error.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// CodeOf returns the code of an agent's refusal, "" when err is none (the agent did not answer: unknown).
func CodeOf(err error) string {
	var refusal *Error
	if errors.As(err, &refusal) {
		return refusal.Code
	}
	return ""
}

// HTTPStatus is the status a code travels with.
func (e *Error) HTTPStatus() int {
	switch e.Code {
	case CodeUnauthorized:
		return http.StatusUnauthorized
	case CodeBadRequest, CodeUnfenced:
		return http.StatusBadRequest
	case CodeNotFound:
		return http.StatusNotFound
	case CodeBusy, CodeMetastoreAway, CodeSourceAway:
		return http.StatusServiceUnavailable
	case CodeNoRoom, CodeDiskFull:
		return http.StatusInsufficientStorage
	case CodeInternal, CodeStorage:
		return http.StatusInternalServerError
	default:
		return http.StatusConflict
	}
}
