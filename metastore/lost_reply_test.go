//go:build portage_faults

package metastore_test

import (
	"bufio"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"portage/metastore"
)

// loseReplies drops the reply of one named write, once it took effect, until the returned function is called.
func loseReplies(t *testing.T, name string) (stop func()) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	t.Setenv("PORTAGE_FAULTS_SOCKET", socket)
	var stopped atomic.Bool
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(conn).ReadString('\n')
			answer := "\n"
			if strings.HasPrefix(line, "reply "+name+" ") && !stopped.Load() {
				answer = "lose\n"
			}
			_, _ = conn.Write([]byte(answer))
			conn.Close()
		}
	}()
	return func() { stopped.Store(true) }
}

// R6: a reply that is lost leaves the outcome unknown, and repeating the write settles it.
func TestR6ALostReplyIsSettledByRepeatingTheWrite(t *testing.T) {
	for name, write := range map[string]func(f *fixture) func() error{
		"ClaimMove": func(f *fixture) func() error {
			return func() error { _, _, err := f.ClaimMove(f.t.Context(), f.claimRequest("m1", "b2")); return err }
		},
		"CommitOwner": func(f *fixture) func() error {
			c := f.evidence("m1", f.claim("m1", "b2"))
			return func() error { _, err := f.CommitOwner(f.t.Context(), c); return err }
		},
		"AbortMove": func(f *fixture) func() error {
			f.claim("m1", "b2")
			return func() error { _, err := f.AbortMove(f.t.Context(), "m1", "b1", ""); return err }
		},
		"ClaimSwap": func(f *fixture) func() error {
			f.createPayments()
			return func() error { _, err := f.ClaimSwap(f.t.Context(), f.swapRequest("s1")); return err }
		},
		"CommitSwap": func(f *fixture) func() error {
			f.createPayments()
			c := f.swapEvidence("s1", f.claimSwap("s1"))
			return func() error { _, err := f.CommitSwap(f.t.Context(), c); return err }
		},
		"OpenOwner": func(f *fixture) func() error {
			o := f.openRequest()
			return func() error { _, err := f.OpenOwner(f.t.Context(), o); return err }
		},
		"RegisterBroker": func(f *fixture) func() error {
			r := metastore.Registration{ID: "b4", NodeID: 4, Storage: uuid.New(), Process: uuid.New()}
			return func() error { _, err := f.RegisterBroker(f.t.Context(), r); return err }
		},
		"SetDraining": func(f *fixture) func() error {
			return func() error { return f.SetDraining(f.t.Context(), "b2", true, "test", "") }
		},
		"LimitPlan": func(f *fixture) func() error {
			if err := f.SavePlan(f.t.Context(), metastore.Plan{ID: "plan", Hash: "hash", Body: []byte("{}")}); err != nil {
				f.t.Fatal(err)
			}
			limit := metastore.PlanLimit{MaxInFlight: 1, At: time.Now()}
			return func() error { return f.LimitPlan(f.t.Context(), "plan", limit) }
		},
		"HoldController": func(f *fixture) func() error {
			return func() error { _, err := f.HoldController(f.t.Context(), "another"); return err }
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			do := write(f)
			stop := loseReplies(t, name)
			if err := do(); !metastore.IsUnknown(err) {
				t.Errorf("the reply was lost and the write ended with %v", err)
			}
			stop()
			if err := do(); err != nil {
				t.Errorf("repeated, it ended with %v", err)
			}
		})
	}
}

// The reply of a commit is lost and the caller tries to take the move back instead of repeating: it is told who won.
func TestR6ALostReplyIsSettledByAbortMove(t *testing.T) {
	f := newFixture(t)
	c := f.evidence("m1", f.claim("m1", "b2"))
	loseReplies(t, "CommitOwner")
	if _, err := f.CommitOwner(t.Context(), c); !metastore.IsUnknown(err) {
		t.Fatal(err)
	}
	if _, err := f.AbortMove(t.Context(), "m1", "b1", ""); !refusedFor(err, metastore.CodeMoveCommitted) {
		t.Errorf("the abort ended with %v", err)
	}
}
