package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"portage/internal/ledger"
	"portage/metastore"
)

const (
	answersWithin = time.Minute // how long the last records may wait for their answers
	readWithin    = 5 * time.Minute
)

// judge ends the load, reads everything back and prints the verdict.
func (d *demo) judge(ctx context.Context) error {
	d.begin("The load ends, and everything is read back and compared with the journals")
	verdict, err := d.check(ctx, d.ledger, d.consumer)
	if err != nil {
		return err
	}
	d.verdict(verdict)
	d.screen.rows(
		[2]string{"longest wait", d.longestWait()},
		[2]string{"longest frozen", fmt.Sprintf("%.0f ms over %d moves (as the agents saw it)", d.mover.longestFrozen(), len(d.mover.results))})
	switch {
	case !verdict.Whole():
		return fmt.Errorf("the ledger is not whole; its journals are in %s, the logs in %s", d.data.path("ledger"), d.data.dir)
	case d.mover.failed > 0:
		return fmt.Errorf("%d moves failed; the logs are in %s", d.mover.failed, d.data.dir)
	case verdict.InFlight > 0:
		return fmt.Errorf("%d records had no answer %v after the load ended; the logs are in %s", verdict.InFlight, answersWithin, d.data.dir)
	}
	return nil
}

// longestWait tells the waits over the kill from all others: a record of a dead broker waits until that is back and the
// client, which asks no more often than every few seconds, has seen it.
func (d *demo) longestWait() string {
	recovered := d.back
	for _, w := range d.steady.Waits(d.killed, d.back) {
		if end := w.At.Add(w.Took); end.After(recovered) {
			recovered = end
		}
	}
	var over, otherwise time.Duration
	for _, w := range d.steady.Waits(time.Time{}, time.Time{}) {
		if w.At.Add(w.Took).After(d.killed) && w.At.Before(recovered) {
			over = max(over, w.Took)
		} else {
			otherwise = max(otherwise, w.Took)
		}
	}
	return fmt.Sprintf("%v over the kill (franz-go looks for a lost broker every 5 s at the most); %v at any other time", over.Round(time.Millisecond), otherwise.Round(time.Millisecond))
}

// check closes the writers, lets the consumer reach the end and compares.
func (d *demo) check(ctx context.Context, l *ledger.Ledger, consumer *ledger.Consumer) (ledger.Verdict, error) {
	answers, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	if err := l.CloseWriters(answers); err != nil {
		return ledger.Verdict{}, err
	}
	ctx, cancel = context.WithTimeout(ctx, readWithin)
	defer cancel()
	if consumer != nil {
		// What either finds is a fault in the verdict; what they can not ask is told here.
		faults, _ := consumer.Errors()
		if err := errors.Join(consumer.WaitEnd(ctx), consumer.CheckCommitted(ctx)); err != nil {
			if after, _ := consumer.Errors(); after == faults {
				return ledger.Verdict{}, err
			}
		}
	}
	return l.Check(ctx, d.fleet.Bootstrap())
}

// verdict prints it.
func (d *demo) verdict(v ledger.Verdict) {
	title := "Verdict: whole"
	if !v.Whole() {
		title = "Verdict: NOT WHOLE"
	}
	d.screen.say("\n%s", title)
	number := func(name string, n int64) [2]string { return [2]string{name, ledger.Thousands(n)} }
	rows := [][2]string{number("acknowledged", v.Acknowledged), number("found", v.Found), number("lost", v.Lost), number("duplicated", v.Duplicated), number("out of order", v.OutOfOrder),
		number("misplaced", v.Misplaced), number("corrupt", v.Corrupt), number("producer errors", v.ClientErrors), number("consumer errors", v.ConsumerErrors)}
	if v.Unacknowledged > 0 {
		rows = append(rows, [2]string{"unacknowledged", ledger.Thousands(v.Unacknowledged) + " in the log (allowed)"})
	}
	if v.InFlight > 0 {
		rows = append(rows, [2]string{"in flight", ledger.Thousands(v.InFlight) + " without an answer at the end"})
	}
	d.screen.rows(rows...)
	for _, example := range v.Examples {
		d.screen.say("  ! %s", example)
	}
}

// stay keeps the fleet and its load up until Ctrl-C, and then says what became of that load.
func (d *demo) stay(ctx context.Context) error {
	program := os.Args[0]
	if relative, err := filepath.Rel(".", program); err == nil && filepath.IsAbs(program) && len(relative) < len(program) {
		program = relative
	}
	d.screen.say("\nThe fleet stays up until Ctrl-C, which also gives the verdict on the load from here on.")
	l, err := ledger.New(d.data.path("ledger"), demoTopic)
	if err != nil {
		return err
	}
	if err := d.writers(l, "-stay"); err != nil {
		return err
	}
	ui := d.fleet.Temporal.UIURL()
	if ui == "" {
		ui = "that of the Temporal at " + d.fleet.Temporal.Address()
	}
	d.screen.say("")
	d.screen.rows([2]string{"Temporal UI", ui}, [2]string{"Temporal", d.fleet.Temporal.Address()}, [2]string{"brokers", bootstrap(d.fleet)}, [2]string{"metastore", d.fleet.DSN()},
		[2]string{"token file", d.fleet.TokenFile()}, [2]string{"logs", d.data.path("*.log")})
	d.screen.say("\nTry, in another terminal:\n")
	for _, line := range []string{
		fmt.Sprintf("export PORTAGE_DSN='%s' PORTAGE_TOKEN_FILE='%s' TEMPORAL_ADDRESS='%s'", d.fleet.DSN(), d.fleet.TokenFile(), d.fleet.Temporal.Address()),
		program + " cluster members",
		program + " cluster moves --all",
		program + " explain orders/3",
		program + " doctor --single-node-metastore",
		fmt.Sprintf("%s move start %s/3 --to b4 --wait", program, demoTopic),
		fmt.Sprintf("%s move start %s/1 --to b1 --limit 4MiB", program, demoTopic),
		fmt.Sprintf("%s move status %s/1 --wait", program, demoTopic),
		fmt.Sprintf("%s move cancel %s/1", program, demoTopic),
		fmt.Sprintf("kcat -C -b %s -t %s -o -5 -e", bootstrap(d.fleet), demoTopic),
	} {
		d.screen.say("  %s", line)
	}
	<-ctx.Done()

	d.screen.say("\nThe load ends, and everything is read back.")
	ctx = context.WithoutCancel(ctx)
	last, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	verdict, err := d.check(last, l, nil)
	if err != nil {
		return err
	}
	d.screen.say("%v", verdict)
	if !verdict.Whole() {
		return errors.New("the ledger is not whole")
	}
	if moves, err := d.fleet.Store.Moves(ctx, false, 10); err == nil && len(moves) > 0 {
		d.screen.say("%s.", unfinished(moves))
	}
	return nil
}

func unfinished(moves []metastore.Move) string {
	if len(moves) == 1 {
		return fmt.Sprintf("The move of %s/%d is unfinished; the next run lets it go on", moves[0].Topic, moves[0].Partition)
	}
	return fmt.Sprintf("%d moves are unfinished; the next run lets them go on", len(moves))
}
