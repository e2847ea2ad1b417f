package ledger

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// world is a journal of two keys on two partitions, three records each, and the log that holds exactly that.
func world(t *testing.T) (*journal, []found) {
	t.Helper()
	j, err := newJournal(t.TempDir()+"/w.journal", "w", "orders", 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.close() })
	var log []found
	for seq := range int64(3) {
		for key := range 2 {
			id, value := j.next(key, 80)
			j.acknowledge(id, int32(key), 100+seq)
			log = append(log, found{int32(key), 100 + seq, []byte(keyName("w", key)), value})
		}
	}
	slices.SortStableFunc(log, func(a, b found) int { return int(a.partition - b.partition) })
	return j, log // index 0-2: partition 0; 3-5: partition 1
}

func judge(log []found, journals ...*journal) Verdict {
	c := compare(journals...)
	for _, r := range log {
		c.add(r)
	}
	return c.finish()
}

func TestEveryFaultIsFound(t *testing.T) {
	clone := func(r found) found {
		r.value = slices.Clone(r.value)
		return r
	}
	for _, test := range []struct {
		name   string
		change func(j *journal, log []found) []found
		want   Verdict
	}{
		{"nothing wrong", func(_ *journal, log []found) []found { return log },
			Verdict{Acknowledged: 6, Found: 6}},
		{"a record dropped", func(_ *journal, log []found) []found { return slices.Delete(log, 1, 2) },
			Verdict{Acknowledged: 6, Found: 5, Lost: 1}},
		{"the last record dropped", func(_ *journal, log []found) []found { return log[:5] },
			Verdict{Acknowledged: 6, Found: 5, Lost: 1}},
		{"a record doubled at the end", func(_ *journal, log []found) []found {
			twin := clone(log[4])
			twin.offset = 103
			return append(log, twin)
		}, Verdict{Acknowledged: 6, Found: 6, Duplicated: 1}},
		{"a record doubled before its place", func(_ *journal, log []found) []found {
			twin := clone(log[0])
			twin.offset = 99
			return slices.Insert(log, 0, twin)
		}, Verdict{Acknowledged: 6, Found: 6, Duplicated: 1}},
		{"two records swapped", func(_ *journal, log []found) []found {
			log[0].value, log[1].value = log[1].value, log[0].value
			return log
		}, Verdict{Acknowledged: 6, Found: 6, Misplaced: 2, OutOfOrder: 1}},
		{"a record shifted to another offset", func(_ *journal, log []found) []found {
			log[2].offset++
			return log
		}, Verdict{Acknowledged: 6, Found: 6, Misplaced: 1}},
		{"a record in another partition", func(_ *journal, log []found) []found {
			log[5].partition = 0
			return log
		}, Verdict{Acknowledged: 6, Found: 6, Misplaced: 1}},
		{"a bit flipped", func(_ *journal, log []found) []found {
			log[1].value[20] ^= 4
			return log
		}, Verdict{Acknowledged: 6, Found: 6, Corrupt: 1}},
		{"the first bytes overwritten", func(_ *journal, log []found) []found {
			copy(log[1].value, "garbage")
			return log
		}, Verdict{Acknowledged: 6, Found: 6, Corrupt: 1}},
		{"a value under another key", func(_ *journal, log []found) []found {
			log[1].key = []byte("w-1")
			return log
		}, Verdict{Acknowledged: 6, Found: 6, Corrupt: 1}},
		{"a well-formed value that is not what was sent", func(_ *journal, log []found) []found {
			log[1].value, _ = encode(identity{"w", 0, 1}, 80)
			return log
		}, Verdict{Acknowledged: 6, Found: 6, Corrupt: 1}},
		{"a record that was never sent", func(_ *journal, log []found) []found {
			value, _ := encode(identity{"w", 0, 7}, 80)
			return append(log, found{0, 103, []byte("w-0"), value})
		}, Verdict{Acknowledged: 6, Found: 6, Corrupt: 1}},
		{"a record in flight at the end, found", func(j *journal, log []found) []found {
			_, value := j.next(0, 80)
			return append(log, found{0, 103, []byte("w-0"), value})
		}, Verdict{Acknowledged: 6, Found: 6, Unacknowledged: 1, InFlight: 1}},
		{"a record in flight at the end, not found", func(j *journal, log []found) []found {
			j.next(0, 80)
			return log
		}, Verdict{Acknowledged: 6, Found: 6, InFlight: 1}},
		{"a record in flight, found twice", func(j *journal, log []found) []found {
			_, value := j.next(0, 80)
			return append(log, found{0, 103, []byte("w-0"), value}, found{0, 104, []byte("w-0"), value})
		}, Verdict{Acknowledged: 6, Found: 6, Unacknowledged: 1, InFlight: 1, Duplicated: 1}},
		{"a failed produce", func(j *journal, log []found) []found {
			id, _ := j.next(0, 80)
			j.fail(id, errors.New("NOT_ENOUGH_REPLICAS"))
			return log
		}, Verdict{Acknowledged: 6, Found: 6, ClientErrors: 1}},
		{"records of others", func(_ *journal, log []found) []found {
			value, _ := encode(identity{"yesterday", 0, 7}, 80)
			return append(log, found{0, 103, []byte("yesterday-0"), value}, found{1, 103, nil, []byte("hello")}, found{1, 104, nil, nil})
		}, Verdict{Acknowledged: 6, Found: 6, Foreign: 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			j, log := world(t)
			got := judge(test.change(j, log), j)
			examples := got.Examples
			got.Examples = nil
			if fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Fatalf("verdict is\n%+v, want\n%+v\n%s", got, test.want, strings.Join(examples, "\n"))
			}
			faults := test.want.Lost + test.want.Duplicated + test.want.OutOfOrder + test.want.Misplaced + test.want.Corrupt + test.want.ClientErrors
			if got.Whole() != (faults == 0) || int64(len(examples)) != faults {
				t.Fatalf("whole: %t with %d faults, told %q", got.Whole(), faults, examples)
			}
		})
	}
}

func TestRecordsWithoutOffsetsMustBeFoundOnceInOrderInOnePartition(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(log []found) []found
		want   Verdict
	}{
		{"nothing wrong", func(log []found) []found { return log }, Verdict{Acknowledged: 3, Found: 3}},
		{"dropped", func(log []found) []found { return log[1:] }, Verdict{Acknowledged: 3, Found: 2, Lost: 1}},
		{"doubled", func(log []found) []found { return append(log, log[2]) }, Verdict{Acknowledged: 3, Found: 3, Duplicated: 1}},
		{"swapped", func(log []found) []found {
			log[1].value, log[2].value = log[2].value, log[1].value
			return log
		}, Verdict{Acknowledged: 3, Found: 3, OutOfOrder: 1}},
		{"in two partitions", func(log []found) []found {
			log[2].partition = 1
			return log
		}, Verdict{Acknowledged: 3, Found: 3, Misplaced: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			j, err := newJournal(t.TempDir()+"/k.journal", "k", "orders", 1)
			if err != nil {
				t.Fatal(err)
			}
			var log []found
			for seq := range int64(3) {
				_, value := j.next(0, 80)
				log = append(log, found{0, 40 + 2*seq, []byte("k-0"), value})
			}
			j.acknowledgeAll()
			if err := j.close(); err != nil {
				t.Fatal(err)
			}
			got := judge(test.change(log), j)
			got.Examples = nil
			if fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Fatalf("verdict is\n%+v, want\n%+v", got, test.want)
			}
		})
	}
}

func TestVerdictIsOneLine(t *testing.T) {
	v := Verdict{Acknowledged: 1234567, Found: 1234567, LongestWait: 1234 * time.Millisecond}
	if want := "whole: 1,234,567 acknowledged, 1,234,567 found, 0 lost, 0 duplicated, 0 out of order, no client error; longest wait 1.234s"; v.String() != want {
		t.Fatalf("%q, want %q", v, want)
	}
	v = Verdict{Acknowledged: 10, Found: 9, Lost: 1, ConsumerErrors: 2}
	if want := "NOT WHOLE: 10 acknowledged, 9 found, 1 lost, 0 duplicated, 0 out of order, 2 consumer errors"; v.String() != want {
		t.Fatalf("%q, want %q", v, want)
	}
}

func TestKcatErrorsAreToldFromNewsOfConnections(t *testing.T) {
	for line, fault := range map[string]bool{
		"": false,
		"%3|1700000000.1|FAIL|rdkafka#producer-1| [thrd:127.0.0.1:9/1]: 127.0.0.1:9/1: Connect to ipv4#127.0.0.1:9 failed: Connection refused (after 0ms in state CONNECT)": false,
		"%6|1700000000.1|FAIL|rdkafka#producer-1| [thrd:127.0.0.1:9/1]: 127.0.0.1:9/1: Disconnected (after 2000ms in state UP)":                                             false,
		"% ERROR: Local: Broker transport failure: 127.0.0.1:9/1: Connect to ipv4#127.0.0.1:9 failed: Connection refused (after 0ms in state CONNECT)":                      false,
		"% ERROR: Local: All broker connections are down: 3/3 brokers are down":                                                                                             false,
		"% Delivery failed for message: Broker: Message size too large":                                                                                                     true,
		"% ERROR: Failed to produce message (12 bytes): Local: Queue full":                                                                                                  true,
		"% FATAL: Local: Fatal error: Broker: Out of order sequence number":                                                                                                 true,
		"% ERROR: Broker: Unknown topic or partition: topic orders":                                                                                                         true,
		"%1|1700000000.1|FATAL|rdkafka#producer-1| [thrd:x]: Fatal error: Local":                                                                                            true,
		"%4|1700000000.1|GETPID|rdkafka#producer-1| [thrd:main]: something slow":                                                                                            false,
	} {
		if kcatFault(line) != fault {
			t.Errorf("fault is %t for %q", !fault, line)
		}
	}
}
