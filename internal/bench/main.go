// Command bench measures Portage against what it is compared with, on this machine in one run, and prints one JSON object
// a line. `./task bench` runs everything, `./task bench -- NAME` one benchmark. Figures are measurements, never
// assertions; docs/benchmarks.md keeps those of a quiet machine with machine and date.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sort"

	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"portage/internal/fleet"
)

// benches in the order they run.
var benches = []struct {
	name string
	help string
	run  func(context.Context, *bench) error
	args []string // of the agents
}{
	{"frozen_time", "how long writes are held by a move, at 16 MiB, 256 MiB and 1 GiB", frozenTime, nil},
	{"copy_throughput", "a move of 2 GiB against cp and sync of the same files", copyThroughput, nil},
	{"move_overhead", "what a move of an empty partition costs beside the same workflow with empty activities", moveOverhead,
		[]string{"--max-transfers", "1000", "--max-frozen", "1000"}},
}

// plannerBench needs neither fleet nor room: it runs before the others.
const plannerBench = "planner"

type bench struct {
	fleet *fleet.Fleet
	dir   string
	quick bool
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == pacedCopyCommand {
		os.Exit(pacedCopyMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == plannerCommand {
		os.Exit(plannerMain(os.Args[2:]))
	}
	quick := flag.Bool("quick", false, "fewer repetitions: a look, not a measurement")
	dir := flag.String("dir", "", "folder for the data; empty: a temporary one")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: bench [--quick] [--dir DIR] [NAME ...]")
		fmt.Fprintf(os.Stderr, "  %-16s %s\n", plannerBench, "planner_goals, planner_feed and planner_count: time, peak memory and quality of plans")
		for _, b := range benches {
			fmt.Fprintf(os.Stderr, "  %-16s %s\n", b.name, b.help)
		}
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *dir, *quick, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, quick bool, names []string) error {
	wanted := map[string]bool{}
	for _, n := range names {
		wanted[n] = true
	}
	delete(wanted, plannerBench)
	for _, b := range benches {
		delete(wanted, b.name)
	}
	for n := range wanted {
		return fmt.Errorf("there is no benchmark %q; the names are in --help", n)
	}
	if len(names) == 0 || contains(names, plannerBench) {
		if err := planning(ctx, quick); err != nil {
			return fmt.Errorf("%s: %w", plannerBench, err)
		}
	}
	if len(names) == 1 && names[0] == plannerBench {
		return nil
	}
	if dir == "" {
		temporary, err := os.MkdirTemp("", "portage-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temporary)
		dir = temporary
	}
	if err := os.Chmod(dir, 0o755); err != nil { // Postgres runs as a user of its own
		return err
	}
	if err := needRoom(dir); err != nil {
		return err
	}
	binary := filepath.Join(dir, "portage")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/portage")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the binary (run this from the checkout): %w", err)
	}
	for _, b := range benches {
		if len(names) > 0 && !contains(names, b.name) {
			continue
		}
		if err := one(ctx, b.run, binary, filepath.Join(dir, b.name), quick, b.args); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
	}
	return nil
}

// one runs a benchmark on a fleet of its own.
func one(ctx context.Context, measure func(context.Context, *bench) error, binary, dir string, quick bool, agentArgs []string) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := fleet.Start(ctx, fleet.Options{Dir: dir, Binary: binary, Progress: os.Stderr, AgentArgs: agentArgs})
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		os.RemoveAll(dir)
	}()
	for n := 1; n <= 2; n++ {
		if _, err := f.AddAgent(ctx, n); err != nil {
			return err
		}
	}
	if _, err := f.AddWorker(); err != nil {
		return err
	}
	return measure(ctx, &bench{fleet: f, dir: dir, quick: quick})
}

// roomBytes is what the largest benchmark needs: the partition twice, its copy by cp, and slack.
const roomBytes = 10 << 30

func needRoom(dir string) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return err
	}
	if free := int64(stat.Bavail) * stat.Bsize; free < roomBytes {
		return fmt.Errorf("%s has %d GiB free, the benchmarks need %d: name another folder with --dir", dir, free>>30, int64(roomBytes)>>30)
	}
	return nil
}

func emit(v any) error {
	line, err := json.Marshal(v)
	if err == nil {
		fmt.Println(string(line))
	}
	return err
}

func contains(all []string, s string) bool {
	for _, a := range all {
		if a == s {
			return true
		}
	}
	return false
}

// quantile of unsorted values, 0 for none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := append([]float64(nil), values...)
	sort.Float64s(sorted)
	at := q * float64(len(sorted)-1)
	low := int(at)
	if low+1 >= len(sorted) {
		return round(sorted[low])
	}
	return round(sorted[low] + (sorted[low+1]-sorted[low])*(at-float64(low)))
}

func round(v float64) float64 { return float64(int64(v*100+0.5)) / 100 }

func milliseconds(d time.Duration) float64 { return round(float64(d.Microseconds()) / 1000) }
