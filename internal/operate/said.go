package operate

import "strings"

// Said reports whether an order says who gives it and why; blanks say neither. Everything that changes something must: it stands in the
// audit, or in the history of the workflow.
func Said(by, reason string) error {
	switch {
	case strings.TrimSpace(reason) == "":
		return errorf(Invalid, CodeReasonMissing, `say why, with --reason or "reason": it is kept with what is done`)
	case strings.TrimSpace(by) == "":
		return errorf(Invalid, CodeByMissing, `say who asks, with "by": it is kept with what is done`)
	}
	return nil
}
