package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"portage/planner"
)

func TestBrokersOnTheCommandLine(t *testing.T) {
	got, err := parseBrokers([]string{"b9:disk=2TiB,net=1Gbit,rack=a,weight=1.5", "b10"})
	want := []planner.Broker{{ID: "b9", Rack: "a", Alive: true, DiskBytes: 2 << 40, DiskFreeBytes: 2 << 40, NetBytesPerSec: 125e6, Weight: 1.5}, {ID: "b10", Alive: true}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, text := range []string{"b9:disk=much", "b9:cpu=4", "b9:weight=0", "b9:net=1Gb", "b9:disk"} {
		if got, err := parseBrokers([]string{text}); err == nil {
			t.Errorf("%s was taken for %+v", text, got)
		}
	}
}

// snapshotFile is a small fleet in a file: b1 has four equal partitions, b2 none.
func snapshotFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "fleet.json")
	text := `{"format":1,"takenAt":"2026-11-29T00:00:00Z","brokers":[{"id":"b1","alive":true},{"id":"b2","alive":true}],"topics":[{"name":"t"}],"partitions":[`
	for i := range 4 {
		if i > 0 {
			text += ","
		}
		text += `{"topic":"t","partition":` + string(rune('0'+i)) + `,"owner":"b1","version":7,"in":2000000,"out":2000000,"disk":200000000}`
	}
	if err := os.WriteFile(name, []byte(text+"]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestAPlanNeedsNoFleet(t *testing.T) {
	name := snapshotFile(t)
	for _, tc := range []struct {
		args string
		code int
	}{
		{"", 0},
		{"--count-only --json", 0},
		{"--print-settings", 0},
		{"--add-broker b9:disk=1TiB --remove-broker b1", 0},
		{"--max-actions 1", 0},
		{"--max-actions=-1", exitUsage},
		{"--sample 20s", exitUsage},
		{"--remove-broker b7", exitFailed},
		{"--add-broker b1", exitFailed},
		{"--add-broker b9:disk=x", exitUsage},
		{"--dsn postgres://nowhere", 0}, // the environment may name a fleet: the file goes before it
	} {
		if code := run(context.Background(), append([]string{"plan", "--snapshot", name}, strings.Fields(tc.args)...)); code != tc.code {
			t.Errorf("plan %s: exit code %d, want %d", tc.args, code, tc.code)
		}
	}
	if code := run(context.Background(), []string{"plan"}); code != exitUsage {
		t.Errorf("plan of nothing: exit code %d", code)
	}
}

func TestASavedSnapshotIsThatOfThePlan(t *testing.T) {
	name := snapshotFile(t)
	saved := filepath.Join(t.TempDir(), "saved.json")
	if code := run(context.Background(), []string{"plan", "--snapshot", name, "--add-broker", "b9", "--save", saved, "--json"}); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	file, err := os.Open(saved)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s, err := planner.ReadSnapshot(file)
	if err != nil || len(s.Brokers) != 3 || s.Len() != 4 {
		t.Errorf("saved: %+v, %v", s, err)
	}
}

func TestAPlanTellsWhatItDoesAndWhy(t *testing.T) {
	file, err := os.Open(snapshotFile(t))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s, err := planner.ReadSnapshot(file)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := planner.MakePlan(s, planner.DefaultSettings())
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := writePlan(&text, plan, false); err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"MOVE", "t/0", "b1 has 7.6 MiB/s", "2 partitions move", plan.Hash[:12], "4 > 2", "met"} {
		if !strings.Contains(text.String(), words) {
			t.Errorf("it does not say %q:\n%s", words, text.String())
		}
	}
}
