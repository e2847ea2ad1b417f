//go:build portage_faults

package brokeragent_test

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/native"
)

// unknownFrame is a journal of one sound frame that means nothing: no torn write looks like it.
var unknownFrame = append(binary.BigEndian.AppendUint32([]byte{0, 0, 0, 1}, crc32.Checksum([]byte{0xff}, crc32.MakeTable(crc32.Castagnoli))), 0xff)

// Whatever is damaged in one partition's folder, that partition stays closed and names the file, nothing of it is
// changed, and the others serve.
func TestADamagedPartitionStaysClosedAndTheOthersServe(t *testing.T) {
	f := agenttest.New(t)
	b1 := f.Start("b1", native.Limits{})
	damages := []struct {
		file string // of the folder; a pattern
		bend func([]byte) []byte
	}{
		{"meta.json", func(b []byte) []byte { return b[:len(b)/2] }},
		{"epochs.json", func(b []byte) []byte { return append([]byte("x"), b...) }},
		{"offsets.journal", func(b []byte) []byte { return unknownFrame }},
		{"*.log", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }}, // below what the clean stop proved durable
	}
	orders := f.CreateTopic("orders", int32(len(damages))+1, b1)
	for p := range len(damages) + 1 {
		b1.Write(orders, int32(p), "one", "two")
		if code := b1.CommitOffset(orders, int32(p), "group", 1); code != 0 {
			t.Fatalf("commit: %d", code)
		}
	}
	b1.Stop()
	bent := map[string][]byte{}
	for p, d := range damages {
		found, err := filepath.Glob(filepath.Join(b1.PartitionDir(orders, int32(p)), d.file))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: %v, %v", d.file, found, err)
		}
		whole, err := os.ReadFile(found[0])
		if err != nil {
			t.Fatal(err)
		}
		bent[found[0]] = d.bend(whole)
		if err := os.WriteFile(found[0], bent[found[0]], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b1.Boot()
	for p, d := range damages {
		status := b1.WaitState(orders, int32(p), native.StateClosed)
		if dir := b1.PartitionDir(orders, int32(p)); !strings.Contains(status.Reason, dir) || !strings.Contains(status.Reason, strings.TrimPrefix(d.file, "*")) {
			t.Errorf("the partition with a damaged %s says %q", d.file, status.Reason)
		}
	}
	sound := int32(len(damages))
	b1.WaitState(orders, sound, native.StateOpen)
	b1.Write(orders, sound, "three")
	if values := b1.Values(orders, sound); !slices.Equal(values, []string{"one", "two", "three"}) {
		t.Errorf("the sound partition holds %q", values)
	}
	for file, content := range bent {
		if now, err := os.ReadFile(file); err != nil || !slices.Equal(now, content) {
			t.Errorf("%s was changed (%v)", file, err)
		}
	}
}
