package wire

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// kcat runs the librdkafka client.
func kcat(t *testing.T, stdin string, args ...string) (stdout string, err error) {
	t.Helper()
	path, err := exec.LookPath("kcat")
	if err != nil {
		t.Fatalf("kcat is needed for this test: apt-get install -y kcat")
	}
	cmd := exec.CommandContext(within(t, 30*time.Second), path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	t.Logf("kcat %v: error %v, stderr %s", args, err, errOut.String())
	if err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, errOut.String())
	}
	return out.String(), nil
}

func TestKcatListsProducesConsumesAndQueries(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	topic := f.createTopic("orders", 2, n.id)

	out, err := kcat(t, "", "-b", n.addr, "-L")
	if err != nil || !strings.Contains(out, `topic "orders" with 2 partitions`) || !strings.Contains(out, "broker 1 at "+n.addr) {
		t.Fatalf("-L: %v\n%s", err, out)
	}

	var lines strings.Builder
	const records = 300
	for i := range records {
		fmt.Fprintf(&lines, "record %d %s\n", i, strings.Repeat("same ", 20))
	}
	for codec, name := range map[uint16]string{1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"} {
		before := f.end(PartitionRef{"orders", topic.ID, 1})
		if _, err := kcat(t, lines.String(), "-b", n.addr, "-P", "-t", "orders", "-p", "1", "-z", name, "-X", "enable.idempotence=true"); err != nil {
			t.Fatalf("-P %s: %v", name, err)
		}
		if got := f.end(PartitionRef{"orders", topic.ID, 1}) - before; got != records {
			t.Errorf("-P %s stored %d records, want %d", name, got, records)
		}
		if f.codecs(PartitionRef{"orders", topic.ID, 1})[codec] == 0 {
			t.Errorf("-P %s stored nothing with that codec: %v", name, f.codecs(PartitionRef{"orders", topic.ID, 1}))
		}
	}

	out, err = kcat(t, "", "-b", n.addr, "-C", "-t", "orders", "-p", "1", "-o", "beginning", "-e", "-q")
	if err != nil || strings.Count(out, "\n") != 4*records || !strings.HasPrefix(out, "record 0 ") {
		t.Errorf("-C: %v, %d lines", err, strings.Count(out, "\n"))
	}
	out, err = kcat(t, "", "-b", n.addr, "-Q", "-t", "orders:1:-1")
	if err != nil || !strings.Contains(out, fmt.Sprint("offset ", 4*records)) {
		t.Errorf("-Q: %v\n%s", err, out)
	}
}

func TestKcatFollowsAMove(t *testing.T) {
	f := newFleet(t)
	one, two := f.start(Options{}), f.start(Options{})
	topic := f.createTopic("orders", 1, one.id)
	if _, err := kcat(t, "a\nb\n", "-b", one.addr, "-P", "-t", "orders", "-p", "0"); err != nil {
		t.Fatalf("-P: %v", err)
	}
	f.move("orders", 0, two.id)
	if _, err := kcat(t, "c\n", "-b", one.addr, "-P", "-t", "orders", "-p", "0"); err != nil {
		t.Fatalf("-P after the move: %v", err)
	}
	if end := f.end(PartitionRef{"orders", topic.ID, 0}); end != 3 {
		t.Errorf("log end %d, want 3", end)
	}
	out, err := kcat(t, "", "-b", one.addr, "-C", "-t", "orders", "-p", "0", "-o", "beginning", "-e", "-q")
	if err != nil || out != "a\nb\nc\n" {
		t.Errorf("-C: %v\n%s", err, out)
	}
}

func TestKcatResumesFromItsCommittedOffsets(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	f.createTopic("orders", 1, n.id)
	read := func() string {
		t.Helper()
		out, err := kcat(t, "", "-b", n.addr, "-C", "-t", "orders", "-p", "0", "-o", "stored", "-e", "-q",
			"-X", "group.id=g", "-X", "topic.auto.offset.reset=earliest")
		if err != nil {
			t.Fatalf("-C: %v", err)
		}
		return out
	}
	for _, lines := range []string{"a\nb\n", "c\n"} {
		if _, err := kcat(t, lines, "-b", n.addr, "-P", "-t", "orders", "-p", "0"); err != nil {
			t.Fatalf("-P: %v", err)
		}
		if got := read(); got != lines {
			t.Errorf("read %q, want only %q", got, lines)
		}
	}
}

func TestKcatIsToldAtOnceThatThereAreNoTransactions(t *testing.T) {
	f := newFleet(t)
	n := f.start(Options{})
	topic := f.createTopic("orders", 1, n.id)
	began := time.Now()
	_, err := kcat(t, "v\n", "-b", n.addr, "-P", "-t", "orders", "-p", "0", "-X", "transactional.id=tx")
	if err == nil || !strings.Contains(strings.ToLower(err.Error()), "transaction") {
		t.Errorf("transactional produce: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the error took %s", took)
	}
	if end := f.end(PartitionRef{"orders", topic.ID, 0}); end != 0 {
		t.Errorf("log end %d, want 0", end)
	}
}
