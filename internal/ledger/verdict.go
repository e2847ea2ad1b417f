package ledger

import (
	"fmt"
	"strings"
	"time"
)

// maxExamples is how many faults of a kind are kept in words.
const maxExamples = 5

// Verdict is what a full read says about the journals.
type Verdict struct {
	Acknowledged   int64         `json:"acknowledged"`
	Found          int64         `json:"found"` // acknowledged records that were read back, however often
	Lost           int64         `json:"lost"`
	Duplicated     int64         `json:"duplicated"`
	OutOfOrder     int64         `json:"outOfOrder"`
	Misplaced      int64         `json:"misplaced"` // at another offset than was acknowledged
	Corrupt        int64         `json:"corrupt"`
	Unacknowledged int64         `json:"unacknowledged"` // in the log without an acknowledgement: allowed
	InFlight       int64         `json:"inFlight"`       // without an answer when their writer was closed: not required
	Foreign        int64         `json:"foreign"`        // records of nobody's journal: allowed
	ClientErrors   int64         `json:"clientErrors"`
	ConsumerErrors int64         `json:"consumerErrors"`
	LongestWait    time.Duration `json:"longestWaitNs"`
	Examples       []string      `json:"examples,omitempty"` // the first few faults of each kind
}

// Whole reports whether everything acknowledged is there as it must be and no client saw an error.
func (v Verdict) Whole() bool {
	return v.Found == v.Acknowledged && v.Lost+v.Duplicated+v.OutOfOrder+v.Misplaced+v.Corrupt+v.ClientErrors+v.ConsumerErrors == 0
}

// String is the verdict in one line.
func (v Verdict) String() string {
	var b strings.Builder
	if v.Whole() {
		b.WriteString("whole: ")
	} else {
		b.WriteString("NOT WHOLE: ")
	}
	fmt.Fprintf(&b, "%s acknowledged, %s found, %d lost, %d duplicated, %d out of order", Thousands(v.Acknowledged), Thousands(v.Found), v.Lost, v.Duplicated, v.OutOfOrder)
	for _, extra := range []struct {
		n    int64
		what string
	}{{v.Misplaced, "at another offset"}, {v.Corrupt, "corrupt"}, {v.ClientErrors, "producer errors"}, {v.ConsumerErrors, "consumer errors"}, {v.InFlight, "in flight at the end (not required)"}, {v.Unacknowledged, "in the log without an acknowledgement (allowed)"}} {
		if extra.n > 0 {
			fmt.Fprintf(&b, ", %d %s", extra.n, extra.what)
		}
	}
	if v.ClientErrors+v.ConsumerErrors == 0 {
		b.WriteString(", no client error")
	}
	if v.LongestWait > 0 {
		fmt.Fprintf(&b, "; longest wait %v", v.LongestWait.Round(time.Millisecond))
	}
	return b.String()
}

// Thousands writes 1234567 as 1,234,567.
func Thousands(n int64) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
