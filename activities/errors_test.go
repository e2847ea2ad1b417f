package activities

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.temporal.io/sdk/temporal"

	"portage/brokeragent/control"
	"portage/metastore"
	"portage/workflows/protocol"
)

func TestBlocked(t *testing.T) {
	for _, tc := range []struct {
		err         error
		code, final string // the type of the final error; "" when the step waits
	}{
		// An answer that did not come is never a refusal.
		{errors.New("connection refused"), "silent", ""},
		{context.DeadlineExceeded, "silent", ""},
		{&metastore.Unknown{Write: "CommitOwner", Cause: errors.New("gone")}, "metastore_unreachable", ""},
		{fmt.Errorf("commit: %w", &metastore.Unknown{Write: "CommitOwner", Cause: context.DeadlineExceeded}), "metastore_unreachable", ""},
		// The metastore's refusals end the move with their sentence.
		{&metastore.Refused{Code: metastore.CodeUnknownBroker, Reason: "no"}, metastore.CodeUnknownBroker, protocol.ErrRefused},
		// What can be waited for is.
		{&metastore.Refused{Code: metastore.CodeFleetBusy, Reason: "later"}, metastore.CodeFleetBusy, ""},
		{&metastore.Refused{Code: metastore.CodePlanPaused, Reason: "later"}, metastore.CodePlanPaused, ""},
		{&metastore.Refused{Code: metastore.CodePlanOutside, Reason: "later"}, metastore.CodePlanOutside, ""},
		{&metastore.Refused{Code: metastore.CodePlanNone, Reason: "later"}, metastore.CodePlanNone, ""},
		{&metastore.Refused{Code: metastore.CodePlanOver, Reason: "no"}, metastore.CodePlanOver, protocol.ErrRefused},
		{control.Errorf(control.CodeBusy, "later"), control.CodeBusy, ""},
		{control.Errorf(control.CodeNotOpen, "later"), control.CodeNotOpen, ""},
		{control.Errorf(control.CodeNotFrozen, "later"), control.CodeNotFrozen, ""},
		{control.Errorf(control.CodeSourceAway, "later"), control.CodeSourceAway, ""},
		{control.Errorf(control.CodeMetastoreAway, "later"), control.CodeMetastoreAway, ""},
		{control.Errorf(control.CodeDigestMismatch, "later"), control.CodeDigestMismatch, ""},
		{control.Errorf(control.CodeStorage, "later"), control.CodeStorage, ""},
		{control.Errorf(control.CodeInternal, "later"), control.CodeInternal, ""},
		// A claim that another hand ended starts over.
		{control.Errorf(control.CodeRowMoved, "over"), control.CodeRowMoved, protocol.ErrMoveLost},
		{control.Errorf(control.CodeStaleToken, "over"), control.CodeStaleToken, protocol.ErrMoveLost},
		{control.Errorf(control.CodeNotOwner, "over"), control.CodeNotOwner, protocol.ErrMoveLost},
		{control.Errorf(control.CodeNotFound, "over"), control.CodeNotFound, protocol.ErrMoveLost},
		{control.Errorf(control.CodeFreezeTooLong, "long"), control.CodeFreezeTooLong, protocol.ErrFreezeTooLong},
		// What no waiting mends ends the move.
		{control.Errorf(control.CodeNoRoom, "no"), control.CodeNoRoom, protocol.ErrRefused},
		{control.Errorf(control.CodeNotEmpty, "no"), control.CodeNotEmpty, protocol.ErrRefused},
		{control.Errorf(control.CodeBadRequest, "no"), control.CodeBadRequest, protocol.ErrRefused},
		{control.Errorf(control.CodeUnfenced, "no"), control.CodeUnfenced, protocol.ErrRefused},
		{control.Errorf(control.CodeUnauthorized, "no"), control.CodeUnauthorized, protocol.ErrRefused},
		{fmt.Errorf("ensure: %w", control.Errorf(control.CodeStaleController, "no")), control.CodeStaleController, protocol.ErrRefused},
	} {
		code, final := blocked(tc.err, "silent")
		var failure *temporal.ApplicationError
		kind := ""
		if errors.As(final, &failure) {
			kind = failure.Type()
			if !failure.NonRetryable() {
				t.Errorf("%v is final and would be retried", tc.err)
			}
		}
		if code != tc.code || kind != tc.final {
			t.Errorf("%v is %q and ends with %q, want %q and %q", tc.err, code, kind, tc.code, tc.final)
		}
	}
}
