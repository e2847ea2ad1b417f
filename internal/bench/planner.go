package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"portage/planner"
)

// plannerCommand makes this program plan, in a process of its own, so that its peak memory is that of nothing else.
const plannerCommand = "plan-and-report"

// plannerSeed makes the fleets; each line names it.
const plannerSeed = 4

// plannerCase is one thing to measure.
type plannerCase struct {
	Bench      string `json:"bench"`
	Brokers    int    `json:"brokers"`
	Partitions int    `json:"partitions"`
	Topics     int    `json:"topics"`
	Seed       uint64 `json:"seed"`
}

// plannerGoal is how a goal came out.
type plannerGoal struct {
	OverBefore       int     `json:"over_before"`
	OverAfter        int     `json:"over_after"`
	PeakBefore       float64 `json:"peak_before"` // 1 is the mean
	PeakAfter        float64 `json:"peak_after"`
	ExcessBefore     int64   `json:"excess_before"`
	ExcessAfter      int64   `json:"excess_after"`
	ExcessDivisible  int64   `json:"excess_divisible"`
	ExcessSingle     int64   `json:"excess_single"` // of partitions larger than any band
	BytesFloorOfGoal int64   `json:"bytes_floor"`
}

// plannerLine is one line of the result.
type plannerLine struct {
	plannerCase
	MS       float64                `json:"ms"`
	CPUMS    float64                `json:"cpu_ms"` // of the process meanwhile: what ms would be on a machine with nothing else to do
	PeakMiB  float64                `json:"peak_mib"`
	Actions  int                    `json:"actions,omitempty"`
	Swaps    int                    `json:"swaps,omitempty"`
	BytesGiB float64                `json:"moved_gib,omitempty"`
	FloorGiB float64                `json:"moved_floor_gib,omitempty"`
	Goals    map[string]plannerGoal `json:"goals,omitempty"`
	Reports  int                    `json:"reports,omitempty"`
	Window   int                    `json:"window,omitempty"`
	Moves    int                    `json:"moves,omitempty"`
	Fewest   int                    `json:"fewest_moves,omitempty"`
}

// planning measures the planner: plans for all goals, feeding loads, plans by count.
func planning(ctx context.Context, quick bool) error {
	cases := []plannerCase{
		{"planner_goals", 1000, 1_000_000, 1000, plannerSeed},
		{"planner_goals", 1000, 20_000, 100, plannerSeed}, // 20 partitions a broker: here a MOVE often fits nowhere
		{"planner_feed", 1000, 1_000_000, 1000, plannerSeed},
		{"planner_count", 1000, 100_000, 100, plannerSeed},
	}
	for _, c := range cases {
		for range repetitions(quick) {
			line, err := measurePlanner(ctx, c)
			if err != nil {
				return fmt.Errorf("%s: %w", c.Bench, err)
			}
			if err := emit(line); err != nil {
				return err
			}
		}
	}
	return nil
}

func repetitions(quick bool) int {
	if quick {
		return 1
	}
	return 3
}

// measurePlanner runs a case in a child and adds the child's peak of resident memory.
func measurePlanner(ctx context.Context, c plannerCase) (plannerLine, error) {
	var line plannerLine
	self, err := os.Executable()
	if err != nil {
		return line, err
	}
	child := exec.CommandContext(ctx, self, plannerCommand, c.Bench, strconv.Itoa(c.Brokers), strconv.Itoa(c.Partitions), strconv.Itoa(c.Topics), strconv.FormatUint(c.Seed, 10))
	child.Stderr = os.Stderr
	out, err := child.Output()
	if err != nil {
		return line, err
	}
	if err := json.Unmarshal(out, &line); err != nil {
		return line, err
	}
	usage, ok := child.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return line, errors.New("the child's peak memory is not known here")
	}
	line.PeakMiB = round(float64(usage.Maxrss) / 1024)
	return line, nil
}

func plannerMain(args []string) int {
	c := plannerCase{Bench: args[0]}
	for i, to := range []*int{&c.Brokers, &c.Partitions, &c.Topics} {
		*to, _ = strconv.Atoi(args[1+i])
	}
	c.Seed, _ = strconv.ParseUint(args[4], 10, 64)
	measure := map[string]func(plannerCase) (plannerLine, error){"planner_goals": planGoals, "planner_feed": feedWindows, "planner_count": planCounts}[c.Bench]
	line, err := measure(c)
	if err == nil {
		err = emit(line)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// stopwatch measures time passed and processor time spent.
type stopwatch struct {
	began time.Time
	spent time.Duration
}

func startWatch() stopwatch { return stopwatch{time.Now(), processorTime()} }

func (w stopwatch) stop(line *plannerLine) {
	line.MS, line.CPUMS = milliseconds(time.Since(w.began)), milliseconds(processorTime()-w.spent)
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // fails only for an unknown who
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func planGoals(c plannerCase) (plannerLine, error) {
	line := plannerLine{plannerCase: c}
	s, err := skewedFleet(c)
	if err != nil {
		return line, err
	}
	settings := planner.DefaultSettings()
	settings.MaxActions = 0
	runtime.GC()
	watch := startWatch()
	plan, err := planner.MakePlan(s, settings)
	watch.stop(&line)
	if err != nil {
		return line, err
	}
	line.quality(plan)
	return line, nil
}

// quality is what came out, beside what no plan could do without.
func (line *plannerLine) quality(plan *planner.Plan) {
	line.Actions = len(plan.Actions)
	for i := range plan.Actions {
		if plan.Actions[i].Kind == planner.ActionSwap {
			line.Swaps++
		}
	}
	line.Goals = map[string]plannerGoal{}
	line.BytesGiB, line.FloorGiB = round(float64(plan.BytesMoved)/(1<<30)), round(float64(plan.BytesFloor)/(1<<30))
	for _, g := range plan.Goals {
		line.Goals[g.Goal.String()] = plannerGoal{g.OverBefore, g.OverAfter, round(g.PeakBefore), round(g.PeakAfter), g.ExcessBefore, g.ExcessAfter, g.ExcessFloor, g.ExcessSingle, g.BytesFloor}
	}
}

func planCounts(c plannerCase) (plannerLine, error) {
	line := plannerLine{plannerCase: c}
	s, err := skewedFleet(c)
	if err != nil {
		return line, err
	}
	settings := planner.DefaultSettings()
	settings.MaxActions = 0
	runtime.GC()
	watch := startWatch()
	plan, err := planner.BalanceCounts(s, settings)
	watch.stop(&line)
	if err != nil {
		return line, err
	}
	line.quality(plan)
	line.Moves = plan.Moves()
	extra := c.Partitions % c.Brokers
	for _, b := range plan.Brokers {
		surplus := int(b.Before.Partitions) - c.Partitions/c.Brokers
		if surplus > 0 && extra > 0 {
			surplus, extra = surplus-1, extra-1
		}
		line.Fewest += max(0, surplus)
	}
	return line, nil
}

// feedWindows fills every window, and measures one report more of every partition and the percentiles of all its loads.
func feedWindows(c plannerCase) (plannerLine, error) {
	line := plannerLine{plannerCase: c, Reports: c.Partitions}
	settings := planner.DefaultSettings()
	line.Window = settings.Window
	w, err := planner.NewWindows(settings)
	if err != nil {
		return line, err
	}
	random := rand.New(rand.NewPCG(c.Seed, 0))
	sums := make([]int64, c.Partitions)
	at, sink := time.Unix(1_700_000_000, 0), int64(0)
	for pass := range settings.Window + 2 {
		at = at.Add(time.Minute)
		measured := pass == settings.Window+1
		if measured {
			runtime.GC()
		}
		watch := startWatch()
		for i := range sums {
			sums[i] += random.Int64N(1 << 30)
			key := planner.PartitionKey{Topic: [16]byte{byte(i / c.Topics), byte(i / c.Topics >> 8)}, Partition: int32(i % c.Topics)}
			if err := w.Feed(planner.Report{Key: key, At: at, Disk: sums[i], Produced: sums[i], Consumed: sums[i] * 2}); err != nil {
				return line, err
			}
			if measured {
				l := w.Loads(key)
				sink += l.In + l.Out + l.Disk
			}
		}
		w.EndPass()
		watch.stop(&line)
	}
	if sink == 0 || w.Len() != c.Partitions {
		return line, fmt.Errorf("%d windows hold %d", w.Len(), sink)
	}
	return line, nil
}

// skewedFleet has lognormal sizes and rates (sigma 1.5), owners drawn by lognormal weights (sigma 0.5), and 10 racks.
func skewedFleet(c plannerCase) (*planner.Snapshot, error) {
	random := rand.New(rand.NewPCG(c.Seed, 0))
	lognormal := func(median, sigma float64) float64 { return median * math.Exp(sigma*random.NormFloat64()) }
	perBroker := float64(c.Partitions) / float64(c.Brokers)
	const median = 256 << 20
	disk := int64(perBroker * median * 3.1 * 6) // six times the mean load: no fleet's disks are full
	owners := make([]float64, c.Brokers)        // cumulative
	sum := 0.0
	for i := range owners {
		sum += lognormal(1, 0.5)
		owners[i] = sum
	}
	owner := func() int {
		at, low, high := random.Float64()*sum, 0, c.Brokers-1
		for low < high {
			if middle := (low + high) / 2; owners[middle] < at {
				low = middle + 1
			} else {
				high = middle
			}
		}
		return low
	}
	type drawn struct {
		owner         int
		in, out, size int64
	}
	partitions := make([]drawn, c.Partitions)
	used := make([]int64, c.Brokers)
	for i := range partitions {
		in := lognormal(20<<10, 1.5)
		p := drawn{owner(), int64(in), int64(in * lognormal(2, 0.5)), int64(lognormal(median, 1.5))}
		partitions[i] = p
		used[p.owner] += p.size
	}
	b := planner.NewBuilder(c.Partitions)
	b.FleetID, b.TakenAt = "bench", time.Unix(1_700_000_000, 0)
	names := make([]string, c.Brokers)
	for i := range c.Brokers {
		names[i] = fmt.Sprintf("b%04d", i)
		if err := b.AddBroker(planner.Broker{ID: names[i], Rack: fmt.Sprintf("r%d", i%10), Alive: true, DiskBytes: disk, DiskFreeBytes: disk - used[i], NetBytesPerSec: 1.25e9}); err != nil {
			return nil, err
		}
	}
	topics := make([]string, c.Topics)
	for i := range topics {
		topics[i] = fmt.Sprintf("t%04d", i)
		if err := b.AddTopic(planner.Topic{Name: topics[i]}); err != nil {
			return nil, err
		}
	}
	for i, p := range partitions {
		err := b.Add(planner.Partition{Topic: topics[i%c.Topics], Partition: int32(i / c.Topics), Owner: names[p.owner], Version: 1, In: p.in, Out: p.out, Disk: p.size})
		if err != nil {
			return nil, err
		}
	}
	return b.Build()
}
