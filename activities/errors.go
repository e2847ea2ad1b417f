package activities

import (
	"errors"

	"go.temporal.io/sdk/temporal"

	"portage/brokeragent/control"
	"portage/metastore"
	"portage/workflows/protocol"
)

// refused ends the move with a sentence for the operator.
func refused(code, reason string) error {
	return temporal.NewApplicationErrorWithOptions(reason, protocol.ErrRefused,
		temporal.ApplicationErrorOptions{NonRetryable: true, Category: temporal.ApplicationErrorCategoryBenign, Details: []any{code}})
}

// moveLost ends the claim: a new one starts over.
func moveLost(reason string) error {
	return temporal.NewApplicationErrorWithOptions(reason, protocol.ErrMoveLost,
		temporal.ApplicationErrorOptions{NonRetryable: true, Category: temporal.ApplicationErrorCategoryBenign})
}

func freezeTooLong(reason string) error {
	return temporal.NewApplicationErrorWithOptions(reason, protocol.ErrFreezeTooLong,
		temporal.ApplicationErrorOptions{NonRetryable: true, Category: temporal.ApplicationErrorCategoryBenign})
}

// blocked says what an error makes the step wait for: a stable code and whether waiting can help at all. Whatever is not
// final is waited for; an answer that did not come is never taken for a refusal.
func blocked(err error, silent string) (code string, final error) {
	if metastore.IsUnknown(err) {
		return protocol.CodeMetastoreUnreachable, nil
	}
	if r, ok := metastore.RefusedWith(err, metastore.CodeMetastoreRestored, metastore.CodeMetastoreOlder); ok {
		return r.Code, nil // R1: nobody writes on the row before it is reconciled; then the move goes on or ends
	}
	if r, ok := metastore.RefusedWith(err, metastore.CodeFleetBusy, metastore.CodePlanPaused, metastore.CodePlanOutside, metastore.CodePlanNone); ok {
		return r.Code, nil // it begins when a move in flight has ended, or its rebalance goes on
	}
	if r, ok := metastore.RefusedWith(err); ok {
		return r.Code, refused(r.Code, r.Reason)
	}
	var order *control.Error
	if !errors.As(err, &order) {
		return silent, nil
	}
	switch order.Code {
	case control.CodeRowMoved, control.CodeStaleToken, control.CodeNotOwner, control.CodeNotFound:
		// The claim was ended by another hand, or a later attempt is at work: whatever this one does is void.
		return order.Code, moveLost(order.Message)
	case control.CodeFreezeTooLong:
		return order.Code, freezeTooLong(order.Message)
	case control.CodeNoRoom, control.CodeNotEmpty, control.CodeBadRequest, control.CodeUnfenced, control.CodeStaleController, control.CodeUnauthorized:
		return order.Code, refused(order.Code, order.Message)
	}
	return order.Code, nil // busy, not open yet, not frozen any more, source or metastore away, a disk that failed
}
