package brokeragent

import (
	"os"
	"path/filepath"
	"testing"

	"portage/brokeragent/control"
)

// order is one order as the fence sees it.
func order(move string, epoch int64, controller string, version int64, phase, attempt int32) control.Order {
	return control.Order{Subject: control.Subject{MoveID: move},
		Authority: control.Authority{ControllerEpoch: epoch, ControllerID: controller, Token: control.Token{Version: version, Phase: phase, Attempt: attempt}}}
}

// unclaimed is what the row says of a move that does not hold its partition.
func unclaimed() bool { return false }

func TestFenceAdmit(t *testing.T) {
	for _, tc := range []struct {
		name    string
		seen    []control.Order
		ask     control.Order
		want    string
		claimed bool // the row's word for it
	}{
		{"the first", nil, order("m1", 1, "a", 1, 1, 1), "", false},
		{"the same again", []control.Order{order("m1", 1, "a", 1, 1, 1)}, order("m1", 1, "a", 1, 1, 1), "", false},
		{"a later attempt", []control.Order{order("m1", 1, "a", 1, 1, 1)}, order("m1", 1, "a", 1, 1, 2), "", false},
		{"an earlier attempt", []control.Order{order("m1", 1, "a", 1, 1, 2)}, order("m1", 1, "a", 1, 1, 1), control.CodeStaleToken, false},
		{"a later phase, attempts anew", []control.Order{order("m1", 1, "a", 1, 1, 9)}, order("m1", 1, "a", 1, 2, 1), "", false},
		{"an earlier phase", []control.Order{order("m1", 1, "a", 1, 3, 1)}, order("m1", 1, "a", 1, 2, 9), control.CodeStaleToken, false},
		{"a later claim, all anew", []control.Order{order("m1", 1, "a", 1, 5, 9)}, order("m1", 1, "a", 2, 1, 1), "", false},
		{"an earlier claim", []control.Order{order("m1", 1, "a", 2, 1, 1)}, order("m1", 1, "a", 1, 5, 9), control.CodeStaleToken, false},
		{"tokens are of one move", []control.Order{order("m1", 1, "a", 9, 9, 9)}, order("m2", 1, "a", 1, 1, 1), "", false},
		{"a rival at the same epoch", []control.Order{order("m1", 1, "a", 1, 1, 1)}, order("m2", 1, "b", 1, 1, 1), control.CodeStaleController, false},
		{"a new controller", []control.Order{order("m1", 1, "a", 1, 1, 1)}, order("m2", 2, "b", 1, 1, 1), "", false},
		{"a superseded one with a new move", []control.Order{order("m1", 2, "b", 1, 1, 1)}, order("m2", 1, "a", 1, 1, 1), control.CodeStaleController, false},
		{"a superseded one with a claimed move", []control.Order{order("m1", 1, "a", 1, 1, 1), order("m2", 2, "b", 1, 1, 1)}, order("m1", 1, "a", 1, 2, 1), "", false}, // R15
		{"a superseded one with a claimed move, after a restart", []control.Order{order("m2", 2, "b", 1, 1, 1)}, order("m1", 1, "a", 1, 2, 1), "", true},               // R15
		{"a refused order teaches nothing", []control.Order{order("m1", 2, "b", 1, 1, 1), order("m2", 1, "a", 9, 9, 9)}, order("m2", 2, "b", 1, 1, 1), "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, err := openFence(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range tc.seen {
				_ = f.admit(o, unclaimed)
			}
			if got := control.CodeOf(f.admit(tc.ask, func() bool { return tc.claimed })); got != tc.want {
				t.Errorf("admitted with %q, want %q", got, tc.want)
			}
		})
	}
}

func TestFenceIsOnDiskBeforeTheOrderIsCarriedOut(t *testing.T) {
	dir := t.TempDir()
	f, err := openFence(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.admit(order("m1", 7, "a", 1, 1, 1), unclaimed); err != nil {
		t.Fatal(err)
	}
	again, err := openFence(dir)
	if err != nil || again.current() != (fenceRecord{ControllerEpoch: 7, ControllerID: "a"}) {
		t.Fatalf("after a restart the fence holds %+v (%v)", again.current(), err)
	}
	if code := control.CodeOf(again.admit(order("m2", 6, "z", 1, 1, 1), unclaimed)); code != control.CodeStaleController {
		t.Errorf("an older epoch after a restart: %q", code)
	}
	// What can not be recorded is not carried out.
	gone := &fence{path: filepath.Join(dir, "no", "such", "folder", fenceFile), tokens: map[string]control.Token{}}
	if code := control.CodeOf(gone.admit(order("m1", 8, "a", 1, 1, 1), unclaimed)); code != control.CodeStorage {
		t.Errorf("an epoch that could not be recorded: %q", code)
	}
	if gone.current().ControllerEpoch != 0 {
		t.Error("it was taken all the same")
	}
	// A damaged file refuses to boot; it is never reset.
	if err := os.WriteFile(filepath.Join(dir, fenceFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := openFence(dir); err == nil {
		t.Error("a damaged fence was opened")
	}
}
