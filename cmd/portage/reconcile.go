package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"portage/brokeragent/control"
	"portage/internal/reconcile"
	"portage/metastore"
)

type reconcileCmd struct {
	Yes     bool     `help:"Do it; without, only say what would be done."`
	Without []string `help:"Go on without what this broker holds, because its agent is gone for good. What only it has seen acknowledged is lost." placeholder:"BROKER"`
	storeFlags
	tokenFlags
	outputFlags
}

// reconcileReport is what --json prints.
type reconcileReport struct {
	Asked       []string                   `json:"asked"`
	Without     []string                   `json:"without,omitempty"`
	Controller  *controllerChange          `json:"controller,omitempty"`
	Partitions  []reconcile.Reconciliation `json:"partitions"`
	Done        bool                       `json:"done"`
	Outstanding []string                   `json:"outstanding,omitempty"` // refused, with the reason
}

type controllerChange struct {
	From int64  `json:"from"`
	To   int64  `json:"to"`
	By   string `json:"holder"`
}

// Run compares the metastore with what the agents hold and, with --yes, writes the highest of each.
func (c *reconcileCmd) Run(ctx context.Context) error {
	token, err := c.token()
	if err != nil {
		return err
	}
	c.SingleNodeMetastore = true // after a failover there may be no standby yet, and this must be possible all the same
	store, err := c.open(ctx, quiet())
	if err != nil {
		return err
	}
	defer store.Close()
	report, err := c.plan(ctx, store, control.NewClient(token))
	if err != nil {
		return err
	}
	if c.Yes {
		if err := c.apply(ctx, store, report); err != nil {
			return err
		}
	}
	if err := c.print(report); err != nil {
		return err
	}
	if len(report.Outstanding) > 0 {
		return fmt.Errorf("%d partitions were not reconciled; what the list says first, then run `portage reconcile` again", len(report.Outstanding))
	}
	return nil
}

// plan asks every registered agent and decides. The snapshot is read after the agents answered: a row that they changed
// meanwhile is then newer than what they said, and left alone.
func (c *reconcileCmd) plan(ctx context.Context, store *metastore.Store, agents *control.Client) (*reconcileReport, error) {
	before, err := store.ReadSnapshot(ctx)
	if err != nil {
		return nil, unreachable(err)
	}
	answers, err := c.ask(ctx, agents, before.Brokers)
	if err != nil {
		return nil, err
	}
	snapshot, err := store.ReadSnapshot(ctx)
	if err != nil {
		return nil, unreachable(err)
	}
	report := &reconcileReport{Without: c.Without, Asked: []string{}}
	var held []reconcile.HeldByAgent
	var absent []uuid.UUID
	known := map[uuid.UUID]bool{}
	for _, t := range snapshot.Topics {
		known[t.ID] = true
	}
	epoch, holder, err := store.Controller(ctx)
	if err != nil {
		return nil, unreachable(err)
	}
	change := controllerChange{From: epoch, To: epoch, By: holder}
	for _, a := range answers {
		report.Asked = append(report.Asked, a.Broker)
		held = append(held, heldBy(a))
		for _, row := range a.Rows {
			if !known[row.TopicID] {
				absent = append(absent, row.TopicID)
			}
		}
		if a.ControllerEpoch > change.To {
			change.To, change.By = a.ControllerEpoch, a.ControllerID
		}
	}
	if change.To > epoch {
		report.Controller = &change
	}
	tombstones, err := store.DeletedTopics(ctx, absent)
	if err != nil {
		return nil, unreachable(err)
	}
	deleted := map[uuid.UUID]bool{}
	for _, t := range tombstones {
		deleted[t.ID] = true
	}
	report.Partitions = reconcile.Reconcile(snapshot, held, deleted)
	if report.Partitions == nil {
		report.Partitions = []reconcile.Reconciliation{}
	}
	return report, nil
}

// ask gathers what the agents hold. One that does not answer blocks everything unless --without names it: it may be the
// only one that has seen what was acknowledged last.
func (c *reconcileCmd) ask(ctx context.Context, agents *control.Client, brokers []metastore.Broker) ([]control.HeldRows, error) {
	for _, id := range c.Without {
		if !slices.ContainsFunc(brokers, func(b metastore.Broker) bool { return b.ID == id }) {
			return nil, &exitError{exitUsage, fmt.Errorf("--without %s: there is no such broker; `portage cluster members` lists them", id)}
		}
	}
	var mu sync.Mutex // guards: answers, silent
	var answers []control.HeldRows
	var silent []string
	var group sync.WaitGroup
	for _, b := range brokers {
		if b.Removed || slices.Contains(c.Without, b.ID) {
			continue
		}
		group.Go(func() {
			rows, err := agents.Rows(ctx, b.ControlURL)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent = append(silent, fmt.Sprintf("%s at %s (%v)", b.ID, b.ControlURL, err))
			} else if rows.Broker != b.ID {
				silent = append(silent, fmt.Sprintf("%s at %s (broker %s answers there)", b.ID, b.ControlURL, rows.Broker))
			} else {
				answers = append(answers, rows)
			}
		})
	}
	group.Wait()
	if len(silent) > 0 {
		slices.Sort(silent)
		return nil, unreachable(fmt.Errorf("nothing is reconciled while an agent does not say what it holds: start it, or name it with --without when it is gone for good; silent: %s", strings.Join(silent, "; ")))
	}
	slices.SortFunc(answers, func(a, b control.HeldRows) int { return strings.Compare(a.Broker, b.Broker) })
	return answers, nil
}

func heldBy(a control.HeldRows) reconcile.HeldByAgent {
	held := reconcile.HeldByAgent{Broker: a.Broker}
	for _, t := range a.Topics {
		held.Topics = append(held.Topics, metastore.Topic{ID: t.TopicID, Name: t.Name, Partitions: t.Partitions, ReplicationFactor: t.ReplicationFactor,
			WritePolicy: t.WritePolicy, ProducePolicy: t.ProducePolicy, Internal: t.Internal, Config: t.Config})
	}
	for _, h := range a.Rows {
		row := metastore.Assignment{TopicID: h.TopicID, Topic: h.Topic, Partition: h.Partition, Owner: h.Owner, OwnerStorage: h.OwnerStorage, Epoch: h.Epoch, Version: h.Version,
			State: h.State, OpenedEpoch: h.OpenedEpoch, OpenedProcess: h.OpenedProcess, OpenedEnd: h.OpenedEnd, LastMove: h.LastMove, WriteCopies: h.WriteCopies, SealCopies: h.SealCopies}
		if h.MoveID != "" {
			row.MoveID = &h.MoveID
		}
		held.Rows = append(held.Rows, reconcile.HeldRow{Row: row, Serving: h.Serving})
	}
	return held
}

// apply writes what was planned. What is refused is reported, and the rest is done all the same.
func (c *reconcileCmd) apply(ctx context.Context, store *metastore.Store, report *reconcileReport) error {
	by := "portage reconcile"
	if u, err := user.Current(); err == nil {
		by += " by " + u.Username
	}
	if change := report.Controller; change != nil {
		if err := store.ReconcileController(ctx, change.To, change.By, by); err != nil {
			return unreachable(err)
		}
	}
	for _, r := range report.Partitions {
		r.Write.By = by
		_, err := store.ReconcileRow(ctx, r.Write)
		if metastore.IsUnknown(err) {
			_, err = store.ReconcileRow(ctx, r.Write) // repeated once: it finds itself done, or says that it does not know
		}
		var refused *metastore.Refused
		switch {
		case errors.As(err, &refused):
			report.Outstanding = append(report.Outstanding, fmt.Sprintf("%s/%d: %s", r.Topic, r.Partition, refused.Reason))
		case err != nil:
			return unreachable(err)
		}
	}
	report.Done = true
	return nil
}

func (c *reconcileCmd) print(report *reconcileReport) error {
	if c.JSON {
		return printJSON(report)
	}
	if len(report.Partitions) == 0 && report.Controller == nil {
		fmt.Printf("nothing to do: the metastore agrees with what %d agents hold\n", len(report.Asked))
		return nil
	}
	if change := report.Controller; change != nil {
		fmt.Printf("controller epoch %d becomes %d (%s)\n", change.From, change.To, change.By)
	}
	if len(report.Partitions) > 0 {
		w := table()
		fmt.Fprintln(w, "PARTITION\tROW NOW\tHIGHEST HELD\tBY\tACTION\tWHY")
		for _, r := range report.Partitions {
			by := r.HeldBy
			if r.Serving {
				by += ", serving"
			}
			fmt.Fprintf(w, "%s/%d\t%s\t%s\t%s\t%s: owner %s, epoch %d\t%s\n", r.Topic, r.Partition, rowText(r.Row), rowText(r.Held), by, r.Action, r.Write.Row.Owner, r.Write.Row.Epoch, r.Why)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	for _, line := range report.Outstanding {
		fmt.Fprintln(os.Stderr, line)
	}
	if !report.Done {
		fmt.Println("nothing was changed; `portage reconcile --yes` does it")
	}
	return nil
}

func rowText(row *metastore.Assignment) string {
	if row == nil {
		return "-"
	}
	text := fmt.Sprintf("%s, epoch %d, version %d", row.Owner, row.Epoch, row.Version)
	if row.Moving() != "" {
		text += ", moving"
	}
	return text
}
