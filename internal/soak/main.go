// Command soak moves partitions back and forth on a fleet of three for a long time (an hour, or the duration it is given)
// while clients write and read, processes are killed and stopped and links cut at random. At the end nothing that was
// acknowledged may be lost or doubled, no client may have seen an error, and memory, goroutines, file handles and disk of
// agents and workers must be back to where they were.
//
//	./task soak -- 10m
//	./task soak -- -seed 42 1h
//
// It prints a line a minute and a verdict, and exits with 1 when the verdict is bad.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"portage/internal/chaos"
	"portage/internal/faults/faultctl"
	"portage/internal/fleet"
	"portage/internal/ledger"
	"portage/internal/services"
)

const (
	brokers    = 3
	workers    = 2
	partitions = 4
	topic      = "soak"
	mostFaults = 2
	// settleFor is how long a fleet rests before it is measured, so that caches, pools and idle connections have ended.
	settleFor = 20 * time.Second
	endBound  = 5 * time.Minute
)

func main() {
	seed := flag.Uint64("seed", rand.Uint64(), "what all choices follow from")
	verbose := flag.Bool("v", false, "print every choice")
	flag.Parse()
	duration := time.Hour
	if text := flag.Arg(0); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil || duration <= 0 {
			fmt.Fprintf(os.Stderr, "%q is no duration; say 10m or 1h\n", text)
			os.Exit(2)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, duration, *seed, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// soak is one run.
type soak struct {
	fleet  *fleet.Fleet
	faults *faultctl.Ctl
	chaos  *chaos.Chaos
	book   *ledger.Ledger
	reader *ledger.Consumer
	dir    string

	workerURLs []string // of their metrics
}

func run(ctx context.Context, duration time.Duration, seed uint64, verbose bool) (err error) {
	s := &soak{}
	if s.dir, err = os.MkdirTemp("", "portage-soak"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			fmt.Println("what was written is kept in", s.dir)
			return
		}
		err = os.RemoveAll(s.dir)
	}()
	if err := os.Chmod(s.dir, 0o755); err != nil { // Postgres runs as another user when this runs as root
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	fmt.Printf("soak for %s with seed %d: %d brokers, %d workers, %d partitions\n", duration, seed, brokers, workers, partitions)
	log := func(format string, args ...any) {
		if verbose {
			fmt.Printf(time.Now().Format("15:04:05.000 ")+format+"\n", args...)
		}
	}
	if err := s.start(ctx, seed, log); err != nil {
		return err
	}
	before, err := s.rest(ctx)
	if err != nil {
		return err
	}
	if err := s.soak(ctx, duration); err != nil {
		return err
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endBound)
	defer cancel()
	return s.verdict(end, before)
}

// start brings up the fleet under load and moves every partition once, so that what is measured first is a fleet that works.
func (s *soak) start(ctx context.Context, seed uint64, log func(string, ...any)) (err error) {
	binary := filepath.Join(s.dir, "portage")
	if out, err := exec.CommandContext(ctx, "go", "build", "-tags", "portage_faults", "-o", binary, "portage/cmd/portage").CombinedOutput(); err != nil {
		return fmt.Errorf("build the program: %w\n%s", err, out)
	}
	if s.faults, err = faultctl.New(); err != nil {
		return err
	}
	s.fleet, err = fleet.Start(ctx, fleet.Options{Dir: s.dir, Binary: binary, Progress: os.Stderr, Own: true, Env: []string{s.faults.Env()},
		AgentArgs: []string{"--freeze-lease", "3s"}, Links: s.faults})
	if err != nil {
		return err
	}
	for n := range brokers {
		if _, err := s.fleet.AddAgent(ctx, n+1); err != nil {
			return err
		}
	}
	ports, err := services.FreePorts(workers)
	if err != nil {
		return err
	}
	for _, port := range ports {
		s.workerURLs = append(s.workerURLs, fmt.Sprintf("http://127.0.0.1:%d", port))
		if _, err := s.fleet.AddWorker("--metrics-listen", fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
			return err
		}
	}
	if err := s.fleet.CreateTopic(ctx, topic, partitions); err != nil {
		return err
	}
	if s.book, err = ledger.New(filepath.Join(s.dir, "ledger"), topic); err != nil {
		return err
	}
	if _, err := s.book.StartWriter(ledger.WriterOptions{ID: "franz", Bootstrap: s.fleet.Bootstrap(), Rate: 300}); err != nil {
		return err
	}
	if _, err := s.book.StartKcat(ledger.KcatOptions{ID: "kcat", Bootstrap: s.fleet.Bootstrap(), Rate: 100}); err != nil {
		return err
	}
	s.reader, err = s.book.StartConsumer(ledger.ConsumerOptions{Bootstrap: s.fleet.Bootstrap(), Partitions: partitions, Group: "readers"})
	if err != nil {
		return err
	}
	s.chaos = chaos.New(s.fleet, s.faults, topic, partitions, seed, log)
	for range 2 * partitions {
		if err := s.chaos.Move(ctx, 0); err != nil {
			return err
		}
	}
	return nil
}

// soak breaks and moves until the time is over or somebody interrupts it, and prints a line a minute.
func (s *soak) soak(ctx context.Context, duration time.Duration) error {
	began := time.Now()
	told := began
	for time.Since(began) < duration && ctx.Err() == nil {
		// A move that hangs is a fault of the product, and what it left is looked at: so it is not waited for without end.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), endBound)
		err := s.chaos.Move(bounded, mostFaults)
		cancel()
		if err != nil {
			return fmt.Errorf("after %s: %w", time.Since(began).Round(time.Second), err)
		}
		if time.Since(told) >= time.Minute {
			told = time.Now()
			s.tell(time.Since(began))
		}
	}
	s.tell(time.Since(began))
	return nil
}

func (s *soak) tell(after time.Duration) {
	c := s.chaos.Stats
	fmt.Printf("%8s  moves: %d done, %d cancelled, %d refused, at most %d attempts  killed %d, stopped %d, cut %d, replies lost %d  acknowledged %s, client errors %d, longest wait %s\n",
		after.Round(time.Second), c.Done, c.Cancelled, c.Refused, c.MostInOneMoving, c.Kills, c.Stops, c.Cuts, c.Lost, ledger.Thousands(s.book.Acknowledged()),
		s.book.ClientErrors(), s.book.LongestWait().Round(time.Millisecond))
}

// rest waits until the fleet has come to rest, and measures it.
func (s *soak) rest(ctx context.Context) ([]usage, error) {
	s.faults.Disarm()
	s.faults.Mend()
	if err := s.chaos.Settle(ctx); err != nil {
		return nil, err
	}
	if err := s.purge(ctx); err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(settleFor):
	}
	return s.measure(ctx)
}

// purge sweeps the former copies of every broker.
func (s *soak) purge(ctx context.Context) error {
	for _, id := range s.fleet.AgentIDs() {
		for {
			answer, err := s.fleet.Agents.PurgeTrash(ctx, s.fleet.Agent(id).ControlURL)
			if err == nil && len(answer.Kept) == 0 {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("the trash of %s is not swept: %v, %w", id, answer.Kept, errors.Join(err, ctx.Err()))
			case <-time.After(500 * time.Millisecond):
			}
		}
	}
	return nil
}

// verdict ends the load and says whether everything is as it must be.
func (s *soak) verdict(ctx context.Context, before []usage) error {
	after, err := s.rest(ctx) // under load, as at the start
	if err != nil {
		return err
	}
	var bad []error
	for i, b := range before {
		a := after[i]
		fmt.Printf("%s\n", a.beside(b))
		bad = append(bad, a.worse(b))
	}
	if err := s.book.CloseWriters(ctx); err != nil {
		return err
	}
	bad = append(bad, s.reader.WaitEnd(ctx), s.reader.CheckCommitted(ctx))
	verdict, err := s.book.Check(ctx, s.fleet.Bootstrap())
	if err != nil {
		return err
	}
	fmt.Println(verdict)
	if !verdict.Whole() {
		bad = append(bad, fmt.Errorf("the ledger is not whole: %v", verdict.Examples))
	}
	if err := errors.Join(bad...); err != nil {
		return fmt.Errorf("FAILED: %w", err)
	}
	fmt.Println("PASSED: nothing is lost, nothing is doubled, no client saw an error, everything is back to where it was")
	return nil
}

func (s *soak) close() (err error) {
	if s.faults != nil {
		s.faults.Mend()
	}
	if s.book != nil {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.book.Close(ended) // what is still running after a failure; there is nothing to wait for
	}
	if s.fleet != nil {
		err = s.fleet.Close()
	}
	if s.faults != nil {
		err = errors.Join(err, s.faults.Close())
	}
	return err
}
