package seglog

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"portage/brokeragent/native/recordbatch"
	"portage/brokeragent/native/recordbatch/batchtest"
)

const killedDirVar = "SEGLOG_TEST_KILLED_DIR"

// TestKilledProcess is the process that TestAcknowledgedRecordsSurviveAKill kills: it appends, rolls and deletes, and
// prints each end that is durable.
func TestKilledProcess(t *testing.T) {
	dir := os.Getenv(killedDirVar)
	if dir == "" {
		t.Skip("runs only as a child")
	}
	l, _, err := Open(dir, small)
	if err != nil {
		fmt.Println("open:", err)
		os.Exit(1)
	}
	for {
		seq := int32(l.End())
		a, err := l.Append(batchtest.Batch(batchtest.Opts{ValueBytes: 200, Producer: &batchtest.Producer{ID: 1, Seq: seq}}), 0)
		if err == nil {
			err = l.WaitDurable(context.Background(), a.Next)
		}
		if err == nil {
			_, err = l.Retain(Policy{MaxBytes: 10_000}, time.Now())
		}
		if err != nil {
			fmt.Println("append:", err)
			os.Exit(1)
		}
		fmt.Println("durable", a.Next)
	}
}

func TestAcknowledgedRecordsSurviveAKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	l, err := Create(dir, orders, small)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	acked := int64(0)
	for round := range 12 {
		child := exec.Command(os.Args[0], "-test.run=^TestKilledProcess$")
		child.Env = append(os.Environ(), killedDirVar+"="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(time.Duration(30+17*round)*time.Millisecond, func() { child.Process.Kill() })
		for lines := bufio.NewScanner(out); lines.Scan(); {
			n, ok := strings.CutPrefix(lines.Text(), "durable ")
			if !ok {
				t.Errorf("round %d: the child says %q", round, lines.Text())
				continue
			}
			if end, err := strconv.ParseInt(n, 10, 64); err == nil {
				acked = end
			}
		}
		child.Wait()
		timer.Stop()

		l, rec, err := Open(dir, small)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if l.End() < acked {
			t.Fatalf("round %d: acknowledged up to %d, recovered to %d: %+v", round, acked, l.End(), rec)
		}
		at := l.Start()
		for h, batch := range recordbatch.Iterate(contents(t, l)) {
			if recordbatch.Verify(batch) != nil || h.BaseOffset > at || int64(h.BaseSequence) != h.BaseOffset {
				t.Fatalf("round %d: at %d stands %+v", round, at, h)
			}
			at = h.NextOffset()
		}
		if v := l.CheckProducer(head(1, 0, int32(l.End()), 1)); l.End() > 0 && (v.Kind != Accept || v.UnknownProducer) {
			t.Fatalf("round %d: the producer's next batch is answered %+v", round, v)
		}
		if round%2 == 0 {
			l.Close() // every other round the next process finds a clean close
		} else {
			l.Close()
			removeIfThere(fileOf(dir, l.end, producersExt))
		}
	}
	if acked == 0 {
		t.Fatal("nothing was ever acknowledged")
	}
	t.Logf("acknowledged up to %d", acked)
}
