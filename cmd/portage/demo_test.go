package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDemoFolderBelongsToOneDemoAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "demo")
	first, err := openDemoData(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openDemoData(dir); err == nil || !strings.Contains(err.Error(), "another demo runs in "+dir) {
		t.Fatalf("a second demo on the folder: %v", err)
	}
	first.close()
	again, err := openDemoData(dir)
	if err != nil {
		t.Fatal(err)
	}
	again.close()
}

func TestDemoSeesThatAFolderIsClosedToOthers(t *testing.T) {
	// Not t.TempDir, whose parents may be closed themselves.
	top, err := os.MkdirTemp("/tmp", "demo-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(top)
	inner := filepath.Join(top, "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]bool{0o700: false, 0o711: true} {
		if err := os.Chmod(top, mode); err != nil {
			t.Fatal(err)
		}
		if got := everybodyMayEnter(inner); got != want {
			t.Errorf("under a folder of mode %v: %t", mode, got)
		}
	}
}

func TestDemoSaysWhatIsWrongWithItsFlags(t *testing.T) {
	good := demoCmd{Partitions: 12, Data: 512 << 20, Rate: 500}
	if err := good.validate(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]demoCmd{
		"--partitions": {Partitions: 3, Data: 512 << 20, Rate: 500},
		"--data":       {Partitions: 12, Data: 12 << 20, Rate: 500},
		"--rate":       {Partitions: 12, Data: 512 << 20, Rate: 0},
	} {
		if err := c.validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
