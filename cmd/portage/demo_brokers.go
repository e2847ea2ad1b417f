package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"portage/internal/fleet"
	"portage/internal/ledger"
	"portage/internal/operate"
)

// startBrokers starts a worker and the first three brokers. In a folder of an earlier run its whole fleet comes up, moves
// that it left end, and its topic makes room for the new one.
func (d *demo) startBrokers(ctx context.Context) error {
	known, err := d.knownBrokers(ctx)
	if err != nil {
		return err
	}
	if _, err := d.fleet.AddWorker(); err != nil {
		return err
	}
	for n := 1; n <= max(3, known); n++ {
		a, err := d.addAgent(ctx, n)
		if err != nil {
			return err
		}
		d.note("%s listens on %s", a.ID, a.KafkaAddr)
	}
	if url := d.fleet.Temporal.UIURL(); url != "" {
		d.note("Temporal UI: %s", url)
	}
	if known == 0 {
		return nil
	}
	return d.cleanUp(ctx, known)
}

// knownBrokers is the highest broker that an earlier run left in the folder.
func (d *demo) knownBrokers(ctx context.Context) (highest int, err error) {
	brokers, err := d.fleet.Store.Brokers(ctx)
	for _, b := range brokers {
		n, err := strconv.Atoi(strings.TrimPrefix(b.ID, "b"))
		if _, noFolder := os.Stat(d.data.path(b.ID)); err == nil && noFolder == nil && !b.Removed {
			highest = max(highest, n)
		}
	}
	return highest, err
}

// cleanUp lets moves of the earlier run end, removes its topic, and stops the brokers that are to join later.
func (d *demo) cleanUp(ctx context.Context, known int) error {
	if err := d.awaitMoves(ctx); err != nil {
		return err
	}
	topic, err := d.fleet.Store.FindTopic(ctx, demoTopic)
	if err != nil {
		return err
	}
	if topic != nil {
		soon, cancel := context.WithTimeout(ctx, readyWithin)
		defer cancel()
		if err := d.fleet.WaitTopic(soon, demoTopic); err != nil {
			return d.afresh(err)
		}
		client, err := kgo.NewClient(kgo.SeedBrokers(d.fleet.Bootstrap()...))
		if err != nil {
			return err
		}
		defer client.Close()
		admin := kadm.NewClient(client)
		ends, err := admin.ListEndOffsets(ctx, demoTopic)
		if err == nil {
			err = ends.Error()
		}
		if err != nil {
			return fmt.Errorf("read the topic of the last run: %w", err)
		}
		records := int64(0)
		ends.Each(func(o kadm.ListedOffset) { records += o.Offset })
		d.note("the last run's topic %s is still there with %s records; it makes room for this run's", demoTopic, ledger.Thousands(records))
		if _, err := admin.DeleteTopic(ctx, demoTopic); err != nil {
			return fmt.Errorf("remove the topic of the last run: %w", err)
		}
	}
	if err := os.RemoveAll(d.data.path("ledger")); err != nil {
		return err
	}
	if err := d.purge(ctx, known); err != nil {
		return err
	}
	for n := 4; n <= known; n++ {
		if err := d.fleet.Agent(fmt.Sprintf("b%d", n)).Process.Stop(); err != nil {
			return err
		}
		d.note("b%d, which is empty now, leaves until it is needed", n)
	}
	return nil
}

// awaitMoves waits for moves that the earlier run left in their middle. One that gets nowhere ends with its topic.
func (d *demo) awaitMoves(ctx context.Context) error {
	deadline := time.Now().Add(2 * time.Minute)
	for told := false; ; told = true {
		moves, err := d.fleet.Store.Moves(ctx, false, 100)
		if err != nil {
			return err
		}
		if len(moves) == 0 || time.Now().After(deadline) {
			return nil
		}
		if !told {
			for _, m := range moves {
				d.note("%s/%d, which the last run left on its way from %s to %s, goes on by itself", m.Topic, m.Partition, m.FromBroker, m.ToBroker)
			}
		}
		var lines []string
		for _, m := range moves {
			if view, err := (&operate.Fleet{Temporal: d.fleet.Client}).Look(ctx, m.WorkflowID, m.RunID); err == nil {
				lines = append(lines, "      "+bar(view))
			}
		}
		d.screen.show(lines...)
		if err := pause(ctx, lookEvery); err != nil {
			return err
		}
	}
}

// purge deletes what the removed topic left in the brokers' trash, once they have put it there.
func (d *demo) purge(ctx context.Context, brokers int) error {
	for n := 1; n <= brokers; n++ {
		agent := d.fleet.Agent(fmt.Sprintf("b%d", n))
		for deadline := time.Now().Add(10 * time.Second); ; {
			answer, err := d.fleet.Agents.PurgeTrash(ctx, agent.ControlURL)
			if err != nil {
				return fmt.Errorf("purge the trash of %s: %w", agent.ID, err)
			}
			status, err := d.fleet.Agents.Status(ctx, agent.ControlURL)
			if err == nil && (len(status.Partitions) == 0 || time.Now().After(deadline)) && answer.Deleted == 0 {
				break
			}
			if err := pause(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// readyWithin is how long an agent may take to serve everything it owns.
const readyWithin = time.Minute

func (d *demo) addAgent(ctx context.Context, n int) (*fleet.Agent, error) {
	soon, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	a, err := d.fleet.AddAgent(soon, n)
	return a, d.afresh(err)
}

func (d *demo) startAgent(ctx context.Context, id string) error {
	soon, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if err := d.fleet.StartAgent(id); err != nil {
		return err
	}
	return d.afresh(d.fleet.WaitReady(soon, id))
}

// afresh adds what always helps when a folder can not be taken up.
func (d *demo) afresh(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; remove %s to begin afresh", err, d.data.dir)
}

// join brings a broker into the fleet: a new one, or one that an earlier run left empty.
func (d *demo) join(ctx context.Context, id string) error {
	agent := d.fleet.Agent(id)
	if agent == nil {
		n, err := strconv.Atoi(strings.TrimPrefix(id, "b"))
		if err != nil {
			return err
		}
		if agent, err = d.addAgent(ctx, n); err != nil {
			return err
		}
	} else if err := d.startAgent(ctx, id); err != nil {
		return err
	}
	d.note("%s listens on %s", id, agent.KafkaAddr)
	return nil
}
