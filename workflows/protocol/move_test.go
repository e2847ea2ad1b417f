package protocol

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseMoveInput(t *testing.T) {
	for _, tc := range []struct {
		name, raw string
		want      string   // canonical JSON of the input
		faults    []string // what the error says; none: accepted
	}{
		{"the least", `{"topic":"orders","partition":3,"to":"b2"}`, `{"topic":"orders","partition":3,"to":"b2"}`, nil},
		{"partition 0", `{"topic":"orders","partition":0,"to":"b2"}`, `{"topic":"orders","partition":0,"to":"b2"}`, nil},
		{"everything", ` {"topic":"o","partition":1,"to":"b","by":"me","reason":"why","limit":"64MiB","lag":"1KiB","maxPasses":7,"force":true} `,
			`{"topic":"o","partition":1,"to":"b","by":"me","reason":"why","limit":67108864,"lag":1024,"maxPasses":7,"force":true}`, nil},
		{"sizes as numbers", `{"topic":"o","partition":1,"to":"b","limit":1000}`, `{"topic":"o","partition":1,"to":"b","limit":1000}`, nil},
		{"nothing", ``, "", []string{"not a move", `{"topic":"orders","partition":3,"to":"b2"}`}},
		{"an empty object", `{}`, "", []string{`"topic" is missing`, `"partition" is missing`, `"to" is missing`}},
		{"no partition", `{"topic":"o","to":"b"}`, "", []string{`"partition" is missing`}},
		{"a negative partition", `{"topic":"o","partition":-1,"to":"b"}`, "", []string{`"partition" is -1`}},
		{"a misspelt key", `{"topic":"o","partion":1,"to":"b"}`, "", []string{"partion"}},
		{"two values", `{"topic":"o","partition":1,"to":"b"} {}`, "", []string{"behind the move"}},
		{"a text for a number", `{"topic":"o","partition":"1","to":"b"}`, "", []string{"not a move"}},
		{"a list", `[]`, "", []string{"not a move"}},
		{"broken JSON", `{"topic":`, "", []string{"not a move"}},
		{"a size that is none", `{"topic":"o","partition":1,"to":"b","limit":"fast"}`, "", []string{"fast"}},
		{"passes", `{"topic":"o","partition":1,"to":"b","maxPasses":1001}`, "", []string{"maxPasses"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in, err := ParseMoveInput([]byte(tc.raw))
			if len(tc.faults) == 0 {
				got, _ := json.Marshal(in)
				if err != nil || string(got) != tc.want {
					t.Errorf("got %s (%v), want %s", got, err, tc.want)
				}
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			for _, fault := range tc.faults {
				if !strings.Contains(err.Error(), fault) {
					t.Errorf("%q does not say %q", err, fault)
				}
			}
		})
	}
}

func TestByteSize(t *testing.T) {
	for text, want := range map[string]ByteSize{
		"0": 0, "1": 1, "1B": 1, "1KiB": 1 << 10, "256KiB": 256 << 10, "64MiB": 64 << 20, "1GiB": 1 << 30, "2TiB": 2 << 40,
		"10KB": 10_000, "10MB": 10_000_000, "1GB": 1e9, "1TB": 1e12, " 1.5 GiB ": 3 << 29, "1e3": 1000,
	} {
		if got, err := ParseByteSize(text); err != nil || got != want {
			t.Errorf("%q is read as %d (%v), want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1", "-1KiB", "KiB", "1 XB", "fast", "NaN", "Inf", "9999999TiB", "1KiBKiB"} {
		if got, err := ParseByteSize(text); err == nil {
			t.Errorf("%q is read as %d", text, got)
		}
	}
	for size, want := range map[ByteSize]string{0: "0 B", 1023: "1023 B", 1 << 10: "1.0 KiB", 1536: "1.5 KiB", 64 << 20: "64.0 MiB", 3 << 29: "1.5 GiB"} {
		if got := size.String(); got != want {
			t.Errorf("%d is written %q, want %q", size, got, want)
		}
	}
	var size ByteSize
	for raw, want := range map[string]ByteSize{`"1KiB"`: 1024, `7`: 7} {
		if err := json.Unmarshal([]byte(raw), &size); err != nil || size != want {
			t.Errorf("%s is read as %d (%v)", raw, size, err)
		}
	}
	if err := size.UnmarshalText([]byte("2MiB")); err != nil || size != 2<<20 {
		t.Errorf("%d (%v)", size, err)
	}
}
