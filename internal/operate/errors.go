package operate

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"

	"portage/metastore"
	"portage/planner"
	"portage/workflows/protocol"
)

// Kind says what an [Error] means to whoever asked.
type Kind int

// Kinds of errors.
const (
	Failed      Kind = iota // it was begun and did not succeed
	Invalid                 // the order is not one
	NotFound                // there is nothing by that name
	Refused                 // it can not be done as things are; nothing was changed
	Cancelled               // it was cancelled; what was not committed is as it was
	Unreachable             // something did not answer, so the order may or may not have been taken: give it again
)

// Codes that are not those of [protocol.Codes]. They are stable; docs/http.md lists them.
const (
	CodeAlreadyRunning = "already_running"
	CodeKeyReused      = "idempotency_key_reused"
	CodeNoRebalance    = "no_rebalance"
	CodeNoMove         = "no_move"
	CodeNoDecommission = "no_decommission"
	CodeInvalidInput   = "invalid_input"
	CodeNotNow         = "not_now"
	CodeCancelled      = "cancelled"
	CodeTerminated     = "terminated"
	CodeAbandoned      = "abandoned"
	CodeTooLate        = "too_late"
	CodeStillDraining  = "still_draining"
	CodeNotRemoved     = "not_removed"
	CodeTemporalDown   = "temporal_unreachable"
	CodeMetastoreDown  = protocol.CodeMetastoreUnreachable
	CodeNoWorker       = "no_worker"
	CodeFailed         = "failed"
	CodeReasonMissing  = "reason_missing"
	CodeByMissing      = "by_missing"
	CodeInvalidSetting = metastore.CodeInvalidSetting
)

// Error says why an order was not carried out.
type Error struct {
	Kind    Kind
	Code    string // stable: one of the codes above, or of [protocol.Codes]
	Message string // one sentence: what is the case, and what to do
	// Refusals are all that stand against it, where there are several.
	Refusals []planner.Objection

	cause error
}

func (e *Error) Error() string { return e.Message }
func (e *Error) Unwrap() error { return e.cause }

func errorf(kind Kind, code, format string, args ...any) *Error {
	return &Error{Kind: kind, Code: code, Message: fmt.Sprintf(format, args...)}
}

// because is errorf with what led to it.
func because(cause error, kind Kind, code, format string, args ...any) *Error {
	e := errorf(kind, code, format, args...)
	e.cause = cause
	return e
}

// ofTemporal is an error of a call to Temporal.
func ofTemporal(err error) error {
	if err == nil {
		return nil
	}
	if interrupted(err) {
		return fmt.Errorf("it was not waited for any longer: %w", context.Canceled)
	}
	return because(err, Unreachable, CodeTemporalDown, "Temporal does not answer, so nothing is known of it: %v; ask again once `portage doctor` finds it well", err)
}

// interrupted reports whether whoever asked has given up waiting. The client has its own error for that.
func interrupted(err error) bool {
	var given *serviceerror.Canceled
	return errors.Is(err, context.Canceled) || errors.As(err, &given)
}

// TemporalDown is the error of a connection to Temporal that does not come about.
func TemporalDown(cause error, address string) error {
	return because(cause, Unreachable, CodeTemporalDown, "no Temporal answers at %s; start it, or name another --temporal-address", address)
}

// MetastoreDown is the error of a metastore that can not be opened: it does not answer, or not as the fleet's.
func MetastoreDown(cause error) error {
	return because(cause, Unreachable, CodeMetastoreDown, "%v", cause)
}

// NoWorker reports whether an error says that no worker answers.
func NoWorker(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == CodeNoWorker
}

// Queued is the answer to a start that no worker has taken up.
func Queued(err error, what string, s Started) error {
	return because(err, Unreachable, CodeNoWorker, "no worker answers; %s stays queued as workflow %q and runs once a worker is back: start one with `portage worker`, or cancel it", what, s.WorkflowID)
}

// cancelQueued is the answer to a cancel that no worker carries out.
func cancelQueued(err error) error {
	if !NoWorker(err) {
		return err
	}
	return because(err, Unreachable, CodeNoWorker, "it was asked to cancel, but no worker answers; it is cancelled once one is back: start one with `portage worker`")
}

// ofStore is an error of a call to the metastore; a refusal of it is one here.
func ofStore(err error) error {
	if err == nil {
		return nil
	}
	if refused, ok := metastore.RefusedWith(err); ok {
		kind := Refused
		switch refused.Code {
		case metastore.CodeInvalidSetting:
			kind = Invalid
		case metastore.CodeUnknownBroker, metastore.CodeUnknownTopic, metastore.CodeUnknownPartition:
			kind = NotFound
		}
		return because(err, kind, refused.Code, "%s", refused.Reason)
	}
	return because(err, Unreachable, CodeMetastoreDown, "the metastore does not answer: %v; ask again once `portage doctor` finds it well", err)
}

// missing reports whether Temporal has no such workflow, or none that runs.
func missing(err error) bool {
	var gone *serviceerror.NotFound
	return errors.As(err, &gone) || errors.Is(err, errNotRunning)
}

// absent turns Temporal's answer to a call about a workflow into a sentence: the one given when there is no such workflow, or none that
// runs.
func absent(err error, code, format string, args ...any) error {
	var e *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return err
	case missing(err):
		return because(err, NotFound, code, format, args...)
	}
	return ofTemporal(err)
}

// wasCancelled reports whether what was waited for ended by a cancel.
func wasCancelled(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == Cancelled
}

// ended turns the end of a workflow into what people see. cancelled and terminated are the sentences for those ends.
func ended(err error, cancelled, terminated string) error {
	var failure *temporal.ApplicationError
	var closed *temporal.TerminatedError
	var execution *temporal.WorkflowExecutionError
	switch {
	case err == nil:
		return nil
	case temporal.IsCanceledError(err) && errors.As(err, &execution):
		return because(err, Cancelled, CodeCancelled, "%s", cancelled)
	case errors.As(err, &failure):
		return because(err, kindOf(failure), CodeOf(failure), "%s", failure.Message())
	case errors.As(err, &closed):
		return because(err, Failed, CodeTerminated, "%s", terminated)
	case errors.As(err, &execution):
		return because(err, Failed, CodeFailed, "%v", err)
	case interrupted(err):
		return fmt.Errorf("it goes on; only the waiting has ended: %w", context.Canceled)
	case errors.Is(err, context.DeadlineExceeded):
		return err // it goes on, too
	case missing(err):
		return err
	}
	return ofTemporal(err)
}

// kindOf takes what a workflow ended itself with.
func kindOf(failure *temporal.ApplicationError) Kind {
	switch failure.Type() {
	case protocol.ErrRefused:
		return Refused
	case protocol.ErrInvalidInput:
		return Invalid
	}
	return Failed
}

// CodeOf is the stable code of a workflow's failure.
func CodeOf(failure *temporal.ApplicationError) string {
	var code string
	if failure.HasDetails() && failure.Details(&code) == nil && code != "" {
		return code
	}
	switch failure.Type() {
	case protocol.ErrInvalidInput:
		return CodeInvalidInput
	case protocol.ErrAbandoned:
		return CodeAbandoned
	}
	return CodeFailed
}
