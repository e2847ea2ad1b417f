package brokeragent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"portage/brokeragent/control"
)

// An order found the session, waits for its turn, and meanwhile the move is over and its staging put away: the order must not
// make the staging anew, for nobody would put it away again.
func TestAnEndedSessionStagesNothing(t *testing.T) {
	data := t.TempDir()
	fence, err := openFence(data)
	if err != nil {
		t.Fatal(err)
	}
	all := &sessions{agent: &Agent{cfg: Config{Data: data}, fence: fence}, byID: map[string]*session{}}
	s := all.add(sessionRecord{Subject: control.Subject{MoveID: "m1", TopicID: uuid.New(), Topic: "orders"}})
	all.end("m1")
	if _, err := s.open(nil); control.CodeOf(err) != control.CodeNotFound {
		t.Errorf("opening an ended session says %v", err)
	}
	if _, err := os.Stat(filepath.Join(data, "staging", "m1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a staging folder: %v", err)
	}
}
