package planner

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	for _, tc := range []struct {
		name    string
		samples []float32
		p       float64
		want    float64
	}{
		{"of none", nil, 0.9, 0},
		{"of one", []float32{7}, 0.9, 7},
		{"the least", []float32{3, 1, 2}, 0, 1},
		{"the most", []float32{3, 1, 2}, 1, 3},
		{"the middle of two", []float32{10, 20}, 0.5, 15},
		{"between neighbours", []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0.9, 9.1},
		{"a quarter", []float32{40, 10, 30, 20}, 0.25, 17.5},
		{"equal ones", []float32{5, 5, 5, 5}, 0.9, 5},
	} {
		if got := percentile(slices.Clone(tc.samples), tc.p); math.Abs(got-tc.want) > 1e-5 {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestPercentileIsThatOfTheSortedSamples(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		samples := make([]float32, 1+random.IntN(120))
		for i := range samples {
			samples[i] = float32(random.IntN(50))
		}
		p := random.Float64()
		sorted := slices.Clone(samples)
		slices.Sort(sorted)
		at := p * float64(len(samples)-1)
		low := int(at)
		want := float64(sorted[low])
		if low+1 < len(sorted) {
			want += (float64(sorted[low+1]) - want) * (at - float64(low))
		}
		if got := percentile(samples, p); math.Abs(got-want) > 1e-9 {
			t.Fatalf("p%v of %v is %v, want %v", p, sorted, got, want)
		}
	}
}

func TestWindowsMakeRatesOfCounters(t *testing.T) {
	key := PartitionKey{Topic: [16]byte{1}, Partition: 3}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type report struct {
		second             int
		process            byte
		produced, consumed int64
	}
	for _, tc := range []struct {
		name    string
		reports []report
		samples int
		in, out int64
	}{
		{"the first sight only primes", []report{{0, 1, 500, 500}}, 0, 0, 0},
		{"difference by time", []report{{0, 1, 500, 100}, {10, 1, 1500, 2100}}, 1, 100, 200},
		{"standing still is a rate of nothing", []report{{0, 1, 500, 100}, {10, 1, 500, 100}}, 1, 0, 0},
		{"another process primes", []report{{0, 1, 500, 500}, {10, 2, 1500, 1500}, {20, 2, 1600, 1600}}, 1, 10, 10},
		{"one counter that goes back primes", []report{{0, 1, 500, 500}, {10, 1, 600, 400}, {20, 1, 700, 500}}, 1, 10, 10},
		{"time that stands still primes", []report{{0, 1, 0, 0}, {0, 1, 1000, 1000}, {10, 1, 1100, 1100}}, 1, 10, 10},
		{"time that goes back primes", []report{{10, 1, 0, 0}, {5, 1, 1000, 1000}, {15, 1, 1100, 1100}}, 1, 10, 10},
	} {
		w, err := NewWindows(DefaultSettings())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range tc.reports {
			if err := w.Feed(Report{Key: key, Process: [16]byte{r.process}, At: start.Add(time.Duration(r.second) * time.Second), Disk: 77, Produced: r.produced, Consumed: r.consumed}); err != nil {
				t.Fatal(err)
			}
		}
		got := w.Loads(key)
		if got.Samples != tc.samples || got.In != tc.in || got.Out != tc.out || got.Trusted != (tc.samples > 0) {
			t.Errorf("%s: %+v, want %d samples, %d in, %d out", tc.name, got, tc.samples, tc.in, tc.out)
		}
	}
}

func TestWindowsForget(t *testing.T) {
	settings := DefaultSettings()
	settings.Window, settings.MinValid, settings.Percentile = 3, 2, 1
	w, err := NewWindows(settings)
	if err != nil {
		t.Fatal(err)
	}
	a, b := PartitionKey{Partition: 1}, PartitionKey{Partition: 2}
	at, sum := time.Unix(1000, 0), int64(0)
	feed := func(key PartitionKey, rate int64) {
		at, sum = at.Add(time.Second), sum+rate
		if err := w.Feed(Report{Key: key, At: at, Produced: sum}); err != nil {
			t.Fatal(err)
		}
	}
	feed(a, 0)
	feed(a, 900)
	if l := w.Loads(a); l.Trusted || l.In != 900 {
		t.Errorf("after one sample of the two that trust needs: %+v", l)
	}
	for range 3 {
		feed(a, 5)
	}
	if l := w.Loads(a); !l.Trusted || l.In != 5 || l.Samples != 3 {
		t.Errorf("a sample that left the window still counts: %+v", l)
	}
	w.EndPass()
	feed(b, 0)
	if dropped := w.EndPass(); dropped != 1 || w.Len() != 1 {
		t.Errorf("%d dropped, %d left; want the one that was not reported gone (M35)", dropped, w.Len())
	}
	w.Keep(b)
	if dropped := w.EndPass(); dropped != 0 || w.Len() != 1 {
		t.Errorf("%d dropped, %d left; want the one kept whose new owner has not reported yet", dropped, w.Len())
	}
	feed(b, 1000)
	feed(b, 9)
	if l := w.Loads(b); l.Samples != 1 || l.In != 9 {
		t.Errorf("over a change of the owner it is %+v", l)
	}
	feed(a, 7)
	if l := w.Loads(a); l.Samples != 0 || l.In != 0 {
		t.Errorf("a partition that comes back has %+v of its former window", l)
	}
	if err := w.Feed(Report{Key: a, Disk: -1}); err == nil {
		t.Error("a negative figure was taken")
	}
}
