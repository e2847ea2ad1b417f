package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"portage/internal/fleet"
	"portage/internal/ledger"
	"portage/internal/operate"
	"portage/workflows/protocol"
)

type demoCmd struct {
	Dir        string            `help:"Folder of everything; kept, and taken up again by the next run. ./demo-data, or /var/tmp/portage-demo where root's Postgres can not enter that." type:"path" env:"PORTAGE_DEMO_DIR"`
	Partitions int32             `help:"Partitions of the topic." default:"12" env:"PORTAGE_DEMO_PARTITIONS"`
	Data       protocol.ByteSize `help:"How much is written before anything moves." default:"512MiB" env:"PORTAGE_DEMO_DATA"`
	Rate       int               `help:"Records a second of the steady load." default:"500" env:"PORTAGE_DEMO_RATE"`
	Limit      protocol.ByteSize `help:"Bytes a second of a copy, so that one can watch it; 0 is full speed." default:"16MiB" env:"PORTAGE_DEMO_LIMIT"`
	Stay       bool              `help:"Stay up afterwards, with the load, until Ctrl-C."`
}

const (
	demoTopic = "orders"
	demoGroup = "demo-readers"
	// minPartitionBytes keeps a copy long enough to be killed in its middle: it counts as done 4 MiB before the end.
	minPartitionBytes = 8 << 20
	// killedCopyTakes is how long the copy of the move whose source is killed is made to take.
	killedCopyTakes = 10 * time.Second
	demoSteps       = 7
)

func (c *demoCmd) validate() error {
	switch {
	case c.Partitions < 4 || c.Partitions > 1024:
		return errors.New("--partitions must be from 4 to 1024")
	case int64(c.Data) < int64(c.Partitions)*minPartitionBytes:
		return fmt.Errorf("--data must be at least %s for %d partitions, or a copy ends before its source can be killed", protocol.ByteSize(int64(c.Partitions)*minPartitionBytes), c.Partitions)
	case c.Rate < 1 || c.Rate > 20000:
		return errors.New("--rate must be from 1 to 20000")
	}
	return nil
}

// demo is one run.
type demo struct {
	demoCmd
	screen *screen
	data   *demoData
	fleet  *fleet.Fleet
	ledger *ledger.Ledger
	mover  *mover
	step   int
	// staying: the story is told, so that Ctrl-C is the end and no interruption.
	staying bool

	steady   *ledger.Writer
	consumer *ledger.Consumer
	killed   time.Time // when the source was killed, and when it was back
	back     time.Time
}

// Run tells the story and leaves nothing running behind.
func (c *demoCmd) Run(ctx context.Context) (err error) {
	if err := c.validate(); err != nil {
		return &exitError{exitUsage, err}
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	data, err := openDemoData(c.Dir)
	if err != nil {
		return err
	}
	defer data.close()
	logFile, err := os.OpenFile(data.path("demo.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer logFile.Close()
	d := &demo{demoCmd: *c, screen: newScreen(), data: data}
	d.screen.say("A fleet on this machine. Data and logs are in %s; Ctrl-C ends everything at any time.", data.dir)
	defer func() {
		if ctx.Err() != nil && err != nil && !d.staying {
			d.screen.say("Interrupted; nothing is left running. The next run takes up %s again.", data.dir)
			err = context.Canceled
		}
	}()

	d.begin("Postgres, Temporal, a worker and three brokers start")
	d.fleet, err = fleet.Start(ctx, fleet.Options{Dir: data.dir, Binary: binary, UI: true, Progress: os.Stderr, Logger: slog.New(slog.NewTextHandler(logFile, nil))})
	if err != nil {
		return err
	}
	defer func() {
		d.screen.show()
		d.screen.say("Stopping.")
		err = errors.Join(err, d.fleet.Close())
	}()
	d.mover = &mover{fleet: d.fleet, screen: d.screen, within: 5*time.Minute + time.Duration(float64(d.Data)/float64(d.Partitions)/float64(max(d.Limit, 1<<20))*float64(time.Second))}
	return d.run(ctx)
}

func (d *demo) begin(format string, args ...any) {
	d.step++
	d.screen.say("\n[%d/%d] %s", d.step, demoSteps, fmt.Sprintf(format, args...))
}

func (d *demo) note(format string, args ...any) { d.screen.say("      "+format, args...) }

// run is the story from the first broker to the verdict.
func (d *demo) run(ctx context.Context) (err error) {
	if err := d.startBrokers(ctx); err != nil {
		return err
	}
	if d.ledger, err = ledger.New(d.data.path("ledger"), demoTopic); err != nil {
		return err
	}
	defer func() { // what a failure or Ctrl-C leaves open; closing twice is fine
		soon, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err = errors.Join(err, d.ledger.Close(soon))
	}()
	if err := d.fill(ctx); err != nil {
		return err
	}
	if err := d.startLoad(ctx); err != nil {
		return err
	}
	quarter := max(2, d.Partitions/4)
	if err := d.joinAndMove(ctx, quarter-1); err != nil {
		return err
	}
	if err := d.killMidMove(ctx, quarter-1); err != nil {
		return err
	}
	if err := d.moveBack(ctx, 0); err != nil {
		return err
	}
	failure := d.judge(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if d.Stay {
		d.staying = true
		return errors.Join(failure, d.stay(ctx))
	}
	return failure
}

// owner is where a partition begins: the first three brokers in turn.
func owner(partition int32) string { return fmt.Sprintf("b%d", partition%3+1) }

// fill writes the bulk of the data through a Kafka client, in batches as large as it makes them.
func (d *demo) fill(ctx context.Context) error {
	d.begin("A Kafka client writes %s into topic %s with %d partitions", d.Data, demoTopic, d.Partitions)
	if err := d.data.needRoom(2*d.Data + 512<<20); err != nil {
		return err
	}
	owners := make([]string, d.Partitions)
	for p := range owners {
		owners[p] = owner(int32(p))
	}
	soon, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if err := d.fleet.CreateTopic(soon, demoTopic, d.Partitions, owners...); err != nil {
		return err
	}
	const recordBytes = 16 << 10
	began, count := time.Now(), (int64(d.Data)+recordBytes-1)/recordBytes
	writer, err := d.ledger.StartWriter(ledger.WriterOptions{ID: "fill", Bootstrap: d.fleet.Bootstrap(), Keys: 64 * int(d.Partitions), ValueBytes: recordBytes, Count: count,
		Linger: 10 * time.Millisecond, Client: []kgo.Opt{kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedBytes(32 << 20)}})
	if err != nil {
		return err
	}
	finished := make(chan error, 1)
	go func() { finished <- writer.Wait(ctx) }()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for done := false; !done; {
		select {
		case err := <-finished:
			if err != nil {
				return err
			}
			done = true
		case <-ticker.C:
			_, acknowledged, _ := writer.Counts()
			bytes := acknowledged * recordBytes
			d.screen.show(fmt.Sprintf("      %s of %s, %s/s", protocol.ByteSize(bytes), d.Data, protocol.ByteSize(float64(bytes)/time.Since(began).Seconds())))
		}
	}
	took := time.Since(began)
	d.note("%s in %v, %s/s, every record fsynced before it was acknowledged", protocol.ByteSize(count*recordBytes), took.Round(100*time.Millisecond),
		protocol.ByteSize(float64(count*recordBytes)/took.Seconds()))
	return writer.Close(ctx)
}

// startLoad starts what goes on through everything that follows.
func (d *demo) startLoad(ctx context.Context) (err error) {
	d.begin("Steady load")
	if err := d.writers(d.ledger, ""); err != nil {
		return err
	}
	if d.consumer, err = d.ledger.StartConsumer(ledger.ConsumerOptions{Bootstrap: d.fleet.Bootstrap(), Partitions: d.Partitions, Group: demoGroup}); err != nil {
		return err
	}
	d.note("a consumer reads along and commits every second")
	return pause(ctx, 2*time.Second)
}

// writers start the steady load of a ledger.
func (d *demo) writers(l *ledger.Ledger, suffix string) (err error) {
	d.steady, err = l.StartWriter(ledger.WriterOptions{ID: "steady" + suffix, Bootstrap: d.fleet.Bootstrap(), Rate: d.Rate, Keys: 100})
	if err != nil {
		return err
	}
	d.note("franz-go writes %d records/s with 100 keys, idempotent, acks=all", d.Rate)
	if _, err := exec.LookPath("kcat"); err != nil {
		d.note("kcat is not on the PATH, so it writes nothing")
		return nil
	}
	rate := max(1, d.Rate/5)
	if _, err := l.StartKcat(ledger.KcatOptions{ID: "kcat" + suffix, Bootstrap: d.fleet.Bootstrap(), Rate: rate, Keys: 40}); err != nil {
		return err
	}
	d.note("kcat writes %d records/s with 40 keys, idempotent", rate)
	return nil
}

// joinAndMove adds the fourth broker and moves the first partitions to it, two at a time.
func (d *demo) joinAndMove(ctx context.Context, partitions int32) error {
	d.begin("A fourth broker joins, and partitions move to it")
	if err := d.join(ctx, "b4"); err != nil {
		return err
	}
	moves, ctx := errgroup.WithContext(ctx)
	moves.SetLimit(2)
	for p := range partitions {
		moves.Go(func() error {
			return d.mover.move(ctx, protocol.MoveInput{Topic: demoTopic, Partition: &p, To: "b4", Limit: d.Limit, Reason: "a broker joined"})
		})
	}
	return moves.Wait()
}

// killMidMove kills the source of a move while it copies, and starts it again a second later.
func (d *demo) killMidMove(ctx context.Context, partition int32) error {
	source := owner(partition)
	d.begin("Another partition moves, and its source %s is killed (kill -9) in the middle of the copy", source)
	limit := protocol.ByteSize(float64(d.Data) / float64(d.Partitions) / killedCopyTakes.Seconds())
	enough := make(chan operate.MoveView, 1)
	seen := func(v operate.MoveView) {
		if v.Status.Phase == protocol.PhaseCopy && v.Status.BytesTotal > 0 && v.Status.BytesDone*4 >= v.Status.BytesTotal {
			select {
			case enough <- v:
			default:
			}
		}
	}
	moves, ctx := errgroup.WithContext(ctx)
	moved := make(chan struct{})
	moves.Go(func() error {
		defer close(moved)
		return d.mover.move(ctx, protocol.MoveInput{Topic: demoTopic, Partition: &partition, To: "b4", Limit: limit, Reason: "a broker joined"}, seen)
	})
	moves.Go(func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
			return errors.New("the move ended before its source could be killed; run the demo with more --data")
		case view := <-enough:
			d.killed = time.Now()
			if err := d.fleet.KillAgent(source); err != nil {
				return err
			}
			d.note("kill -9 of %s with %s of %s copied; what it owns waits", source, protocol.ByteSize(view.Status.BytesDone), protocol.ByteSize(view.Status.BytesTotal))
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
		if err := d.startAgent(ctx, source); err != nil {
			return err
		}
		d.back = time.Now()
		d.note("%s is back and serves again, %v after it was killed", source, d.back.Sub(d.killed).Round(100*time.Millisecond))
		return nil
	})
	return moves.Wait()
}

func (d *demo) moveBack(ctx context.Context, partition int32) error {
	to := owner(partition)
	d.begin("One partition moves back to %s, at full speed", to)
	if err := d.mover.move(ctx, protocol.MoveInput{Topic: demoTopic, Partition: &partition, To: to, Reason: "there and back"}); err != nil {
		return err
	}
	return pause(ctx, 2*time.Second)
}

func pause(ctx context.Context, long time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(long):
		return nil
	}
}

func bootstrap(f *fleet.Fleet) string { return strings.Join(f.Bootstrap(), ",") }
