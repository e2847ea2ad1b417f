//go:build portage_faults

package native

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"portage/internal/faults/faultstest"
)

// The age of the freeze alone decides here, so no test has to wait for it.
func TestR27iiAnOldFreezeSendsClientsToLookForTheLeader(t *testing.T) {
	faultstest.Story(t, "R27", func(t *testing.T) string {
		now := time.Now()
		p := &Partition{broker: &Broker{}, state: StateFrozen, freeze: &freeze{at: now.Add(-oldFreeze)}}
		if code := p.parkRefusal(now); code != kerr.RequestTimedOut.Code {
			t.Errorf("in the first park the answer is %d", code)
		}
		if code := p.parkRefusal(now.Add(time.Millisecond)); code != kerr.NotLeaderForPartition.Code {
			return "an old freeze is still answered with REQUEST_TIMED_OUT, on which the Java client asks nobody else"
		}
		p.freeze.at = now
		p.broker.readFailing.Store(true)
		if code := p.parkRefusal(now); code != kerr.NotLeaderForPartition.Code {
			return "a source that can not read its row answers with REQUEST_TIMED_OUT"
		}
		return ""
	})
}
