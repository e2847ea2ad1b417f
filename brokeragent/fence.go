package brokeragent

import (
	"errors"
	"os"
	"path/filepath"
	"sync"

	"portage/brokeragent/control"
	"portage/internal/durable"
	"portage/internal/faults"
)

const fenceFile = "fence.json"

// fence decides who may give orders. The highest controller epoch is on disk before the first order under it is carried
// out; a damaged file refuses to boot, it is never reset. Tokens order the attempts of one move.
type fence struct {
	mu     sync.Mutex
	path   string
	held   fenceRecord
	tokens map[string]control.Token // by move id; the staging and freeze files bound what a restart forgets
}

type fenceRecord struct {
	ControllerEpoch int64  `json:"controllerEpoch"`
	ControllerID    string `json:"controllerId"`
}

func openFence(root string) (*fence, error) {
	f := &fence{path: filepath.Join(root, fenceFile), tokens: map[string]control.Token{}}
	if err := durable.ReadJSON(f.path, &f.held); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return f, nil
}

// admit checks an order's controller epoch and token, in that order. It is called after authentication, so that a
// stranger can never raise the epoch. A claimed move goes on under its id and version whatever the epoch does (R15): a
// lower epoch is refused only for a move that does not hold its partition; claimed looks that up.
func (f *fence) admit(o control.Order, claimed func() bool) error {
	f.mu.Lock()
	_, known := f.tokens[o.MoveID]
	lower := o.ControllerEpoch < f.held.ControllerEpoch
	f.mu.Unlock()
	if lower && !known {
		known = claimed() // a read of the row, so not under the lock
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.tokens[o.MoveID]
	switch {
	case o.ControllerEpoch > f.held.ControllerEpoch:
		next := fenceRecord{ControllerEpoch: o.ControllerEpoch, ControllerID: o.ControllerID}
		if err := durable.WriteJSON(f.path, next); err != nil {
			return control.Errorf(control.CodeStorage, "the controller epoch could not be recorded, so the order is refused: %v", err)
		}
		f.held = next
	case o.ControllerEpoch == f.held.ControllerEpoch && o.ControllerID != f.held.ControllerID:
		return control.Errorf(control.CodeStaleController, "controller epoch %d belongs to %q, not to %q", o.ControllerEpoch, f.held.ControllerID, o.ControllerID)
	case o.ControllerEpoch < f.held.ControllerEpoch && !known:
		return control.Errorf(control.CodeStaleController, "controller epoch %d is superseded by %d (%q)", o.ControllerEpoch, f.held.ControllerEpoch, f.held.ControllerID)
	}
	if faults.Enforced("R16") && o.Token.Less(last) {
		return control.Errorf(control.CodeStaleToken, "a later attempt of move %s was seen (%v after %v); this one is a leftover", o.MoveID, last, o.Token)
	}
	f.tokens[o.MoveID] = o.Token
	return nil
}

// forget drops the tokens of a move that is over.
func (f *fence) forget(moveID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.tokens, moveID)
}

// current is the highest controller epoch seen.
func (f *fence) current() fenceRecord {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held
}
