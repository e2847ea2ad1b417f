package inspect

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"portage/brokeragent/control"
	"portage/metastore"
)

// states are the checks as "name state", in order.
func states(c checks) string {
	var all []string
	for _, one := range c {
		all = append(all, one.Name+" "+string(one.State))
	}
	return strings.Join(all, ", ")
}

func TestExamineStandby(t *testing.T) {
	streaming := metastore.Standby{Name: "s1", State: "streaming", Sync: "sync"}
	for _, c := range []struct {
		name      string
		single    bool
		condition metastore.Condition
		want      State
	}{
		{"none, as told", true, metastore.Condition{}, OK},
		{"none", false, metastore.Condition{}, Fail},
		{"streaming", false, metastore.Condition{SynchronousStandbys: "s1", Standbys: []metastore.Standby{streaming}}, OK},
		{"a quorum", false, metastore.Condition{SynchronousStandbys: "ANY 1 (s1)", Standbys: []metastore.Standby{{Name: "s1", State: "streaming", Sync: "quorum"}}}, OK},
		{"away", false, metastore.Condition{SynchronousStandbys: "s1"}, Fail},
		{"away, and a single node is accepted", true, metastore.Condition{SynchronousStandbys: "s1"}, Fail},
		{"only asynchronous", false, metastore.Condition{SynchronousStandbys: "s1", Standbys: []metastore.Standby{{Name: "s2", State: "streaming", Sync: "async"}}}, Fail},
		{"catching up", false, metastore.Condition{SynchronousStandbys: "s1", Standbys: []metastore.Standby{{Name: "s1", State: "catchup", Sync: "sync"}}}, Fail},
		{"not to be seen by this user", false, metastore.Condition{SynchronousStandbys: "s1", Standbys: []metastore.Standby{{Name: "s1"}}}, Warn},
	} {
		var got checks
		Doctor{SingleNode: c.single}.examineStandby(&got, c.condition)
		if len(got) != 1 || got[0].State != c.want || (c.want != OK) != (got[0].Do != "") {
			t.Errorf("%s: %+v, want %s", c.name, got, c.want)
		}
	}
}

func TestExamineAgent(t *testing.T) {
	const gib = 1 << 30
	process, storage := uuid.New(), uuid.New()
	row := metastore.Broker{ID: "b1", ProcessInstance: process, StorageInstance: storage}
	now := time.Now()
	well := control.AgentStatus{Process: process, Storage: storage, Ready: true, DiskTotalBytes: 100 * gib, DiskFreeBytes: 50 * gib, FileLimit: 65536, OpenFiles: 100, Clock: now}
	const all = "agent b1 ok, agent b1 storage ok, agent b1 disk ok, agent b1 file limit ok, agent b1 clock ok"
	for _, c := range []struct {
		name   string
		change func(*control.AgentStatus)
		want   string
	}{
		{"well", func(*control.AgentStatus) {}, all},
		{"an older release", func(s *control.AgentStatus) { s.FileLimit, s.Clock = 0, time.Time{} }, "agent b1 ok, agent b1 storage ok, agent b1 disk ok"},
		{"superseded", func(s *control.AgentStatus) { s.Process = uuid.New() }, strings.Replace(all, "agent b1 ok", "agent b1 fail", 1)},
		{"not ready", func(s *control.AgentStatus) { s.Ready = false }, strings.Replace(all, "agent b1 ok", "agent b1 warn", 1)},
		{"other storage", func(s *control.AgentStatus) { s.Storage = uuid.New() }, strings.Replace(all, "storage ok", "storage fail", 1)},
		{"little disk", func(s *control.AgentStatus) { s.DiskFreeBytes = 5 * gib }, strings.Replace(all, "disk ok", "disk warn", 1)},
		{"no disk", func(s *control.AgentStatus) { s.DiskFreeBytes = 1 << 20 }, strings.Replace(all, "disk ok", "disk fail", 1)},
		{"few files left", func(s *control.AgentStatus) { s.OpenFiles = 60000 }, strings.Replace(all, "limit ok", "limit warn", 1)},
		{"a low file limit", func(s *control.AgentStatus) { s.FileLimit = 1024 }, strings.Replace(all, "limit ok", "limit warn", 1)},
		{"a wrong clock", func(s *control.AgentStatus) { s.Clock = now.Add(-time.Minute) }, strings.Replace(all, "clock ok", "clock warn", 1)},
		{"a closed partition", func(s *control.AgentStatus) {
			s.Partitions = []control.PartitionStatus{{Topic: "orders", Partition: 3, State: "closed", ReasonCode: control.CodeNotOpen, Reason: "why"}}
		}, strings.Replace(all, "agent b1 disk", "agent b1 partitions fail, agent b1 disk", 1)},
	} {
		status := well
		c.change(&status)
		var got checks
		Doctor{}.examineAgent(&got, agentAnswer{broker: row, status: &status, at: now})
		if states(got) != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, states(got), c.want)
		}
	}
}

func TestExaminationIsAsBadAsItsWorstCheck(t *testing.T) {
	x := Examination{Checks: []Check{{Name: "one", State: OK, Seen: "fine"}}}
	if x.Worst() != OK {
		t.Error(x.Worst())
	}
	x.Checks = append(x.Checks, Check{Name: "two", State: Warn, Seen: "so so", Do: "look"})
	if x.Worst() != Warn {
		t.Error(x.Worst())
	}
	x.Checks = append(x.Checks, Check{Name: "three", State: Fail}, Check{Name: "four", State: Warn})
	if x.Worst() != Fail {
		t.Error(x.Worst())
	}
	var out bytes.Buffer
	if err := x.Write(&out); err != nil || strings.Count(out.String(), "\n") != 5 || !strings.HasPrefix(out.String(), "CHECK") {
		t.Errorf("%v\n%s", err, &out)
	}
}
