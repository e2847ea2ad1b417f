package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"portage/brokeragent/control"
	"portage/brokeragent/native"
	"portage/metastore"
	"portage/workflows/protocol"
)

type promoteCmd struct {
	Partition  partitionArg `arg:"" help:"The partition, as orders/3."`
	From       string       `help:"The broker whose copy becomes the partition; without it the copies that are left are only listed."`
	Copy       string       `help:"Which of its copies; the one that ends highest when empty."`
	Empty      bool         `help:"No copy is left anywhere: begin an empty log where the lost one ended."`
	Without    []string     `help:"With --empty: a broker that does not answer and whose copies are given up. Repeatable." placeholder:"BROKER"`
	AcceptLoss bool         `help:"What the copy lacks is lost for good."`
	Reason     string       `help:"Why, for the audit."`
	storeFlags
	tokenFlags
	outputFlags
}

// silentFor is how long an owner's heartbeat must stand still before it is taken for gone: five heartbeats.
const silentFor = 10 * time.Second

// ownerUnreachable is the state of a partition whose owner's agent does not answer.
const ownerUnreachable = "unreachable"

// promotionReport is what --json prints.
type promotionReport struct {
	Partition  string                  `json:"partition"`
	Owner      string                  `json:"owner"`
	OwnerState string                  `json:"ownerState"`        // as its agent says; "unreachable" when it does not answer
	Warning    string                  `json:"warning,omitempty"` // what an owner that does not answer may still be doing
	KnownEnd   int64                   `json:"knownEnd"`
	Candidates []listed                `json:"candidates"`
	Silent     []string                `json:"silent,omitempty"` // brokers that could not be asked for copies
	Done       *metastore.CopyEvidence `json:"done,omitempty"`
	NewOwner   string                  `json:"newOwner,omitempty"`
	Epoch      int32                   `json:"epoch,omitempty"`
}

// Run lists the copies that are left of a partition, over all brokers, and with --from and --accept-loss gives the partition to
// one of them. It is refused while the owner lives, unless its own agent says that the partition is closed there.
func (c *promoteCmd) Run(ctx context.Context) error {
	token, err := c.token()
	if err != nil {
		return err
	}
	store, err := c.open(ctx, quiet())
	if err != nil {
		return err
	}
	defer store.Close()
	agents := control.NewClient(token)
	row, err := store.FindAssignment(ctx, c.Partition.topic, c.Partition.number)
	if err != nil {
		return unreachable(err)
	}
	if row == nil {
		return fmt.Errorf("there is no partition %s; check topic and number", c.Partition)
	}
	owner, err := store.FindBroker(ctx, row.Owner)
	if err != nil {
		return unreachable(err)
	}
	if owner == nil {
		return fmt.Errorf("%s belongs to %s, which is not registered; `portage cluster members` lists the brokers", c.Partition, row.Owner)
	}
	report, err := c.survey(ctx, store, agents, row)
	if err != nil {
		return err
	}
	status, err := agents.Partition(ctx, owner.ControlURL, row.TopicID, row.Partition)
	report.ownerSays(status, err)
	if c.From == "" || !c.AcceptLoss {
		if err := c.show(report); err != nil {
			return err
		}
		return errors.New("nothing was promoted; name the broker with --from, and say --accept-loss")
	}
	if err := report.againstPromoting(); err != nil {
		return err
	}
	chosen, err := c.choose(report)
	if err != nil {
		return err
	}
	decision := metastore.CopyPromotion{ID: "promote-" + uuid.NewString(), TopicID: row.TopicID, Partition: row.Partition, Owner: row.Owner, Epoch: row.Epoch, Version: row.Version,
		Broker: c.From, Copy: chosen.ID, CopyEnd: max(0, chosen.End), By: whoami(), Reason: c.Reason}
	if report.OwnerState == string(native.StateClosed) {
		decision.Closed = &owner.ProcessInstance
	} else if decision.Heartbeat, err = c.standsStill(ctx, store, row.Owner); err != nil {
		return err
	}
	after, evidence, err := settle(ctx, store, decision)
	if err != nil {
		return err
	}
	report.Done, report.NewOwner, report.Epoch = evidence, after.Owner, after.Epoch
	return c.show(report)
}

// ownerSays takes what the owner's agent answered. The copy in its own place is a candidate when all that keeps it closed is that
// it is not what the metastore knows of: a restored backup is often all there is.
func (r *promotionReport) ownerSays(status control.PartitionStatus, err error) {
	r.OwnerState = status.State
	if err != nil && control.CodeOf(err) == "" {
		r.OwnerState, r.Warning = ownerUnreachable, protocol.PromotionWarning
	}
	if status.State != string(native.StateClosed) || status.End == 0 {
		return
	}
	switch status.ReasonCode {
	case native.CodeDataOlder, native.CodeOtherEpoch, metastore.CodeStorageChanged:
		r.Candidates = append(r.Candidates, listed{r.Owner, control.RetainedCopy{ID: control.CopyInPlace, TopicID: status.TopicID, Topic: status.Topic,
			Partition: status.Partition, Epoch: -1, End: status.End, Bytes: status.Bytes, Reason: status.ReasonCode}})
	}
}

// againstPromoting refuses to promote over an owner that serves the partition, or is about to.
func (r *promotionReport) againstPromoting() error {
	switch native.State(r.OwnerState) {
	case native.StateOpen, native.StateFrozen, native.StateOpening:
		return fmt.Errorf("%s is alive and has %s %s, so nothing is promoted over it; move the partition, or stop the agent if its data is lost for good", r.Owner, r.Partition, r.OwnerState)
	}
	return nil
}

// survey asks every broker for the copies it has left.
func (c *promoteCmd) survey(ctx context.Context, store *metastore.Store, agents *control.Client, row *metastore.Assignment) (*promotionReport, error) {
	report := &promotionReport{Partition: row.Name(), Owner: row.Owner, Candidates: []listed{}}
	var err error
	if report.KnownEnd, err = store.LastKnownEnd(ctx, row); err != nil {
		return nil, unreachable(err)
	}
	brokers, err := store.Brokers(ctx)
	if err != nil {
		return nil, unreachable(err)
	}
	for _, b := range brokers {
		kept, err := agents.Retained(ctx, b.ControlURL)
		if err != nil {
			report.Silent = append(report.Silent, b.ID)
			continue
		}
		for _, copied := range kept.Copies {
			if copied.TopicID == row.TopicID && copied.Partition == row.Partition {
				report.Candidates = append(report.Candidates, listed{b.ID, copied})
			}
		}
	}
	return report, nil
}

// choose finds the copy that was asked for. An empty log is begun only when every broker but the owner says that it has no copy,
// or is named as one whose copies are given up.
func (c *promoteCmd) choose(report *promotionReport) (listed, error) {
	if c.Empty {
		if len(report.Candidates) > 0 {
			return listed{}, fmt.Errorf("there are copies left of %s; promote one of them, `portage promote %s` lists them", c.Partition, c.Partition)
		}
		for _, id := range report.Silent {
			if id != report.Owner && !slices.Contains(c.Without, id) {
				return listed{}, fmt.Errorf("%s does not answer and may keep a copy of %s; start its agent, or give up what it has with --without %s", id, c.Partition, id)
			}
		}
		return listed{}, nil
	}
	var best *listed
	for i := range report.Candidates {
		copied := &report.Candidates[i]
		if copied.Broker == c.From && (c.Copy == "" || c.Copy == copied.ID) && (best == nil || copied.End > best.End) {
			best = copied
		}
	}
	if best == nil {
		return listed{}, fmt.Errorf("%s has no such copy of %s; `portage promote %s` lists those that are left, --empty begins an empty log when there is none", c.From, c.Partition, c.Partition)
	}
	return *best, nil
}

// standsStill waits until the owner's heartbeat counter has not moved for silentFor, by this process's clock, and returns it.
func (c *promoteCmd) standsStill(ctx context.Context, store *metastore.Store, owner string) (int64, error) {
	var counter int64 = -1
	for began := time.Now(); time.Since(began) < silentFor; {
		now, err := store.FindBroker(ctx, owner)
		if err != nil {
			return 0, unreachable(err)
		}
		switch {
		case now == nil:
			return 0, fmt.Errorf("%s is not registered any more", owner)
		case counter >= 0 && now.Heartbeat != counter:
			return 0, fmt.Errorf("%s is alive, so nothing is promoted over it; stop its agent if its data is lost for good", owner)
		}
		counter = now.Heartbeat
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
	return counter, nil
}

// settle repeats the write until its outcome is known: a lost reply is no refusal (R6).
func settle(ctx context.Context, store *metastore.Store, decision metastore.CopyPromotion) (*metastore.Assignment, *metastore.CopyEvidence, error) {
	for attempt := 0; ; attempt++ {
		after, evidence, err := store.PromoteCopy(ctx, decision)
		if refused, ok := metastore.RefusedWith(err); ok {
			return nil, nil, errors.New(refused.Reason)
		}
		if err == nil || ctx.Err() != nil || attempt == 5 {
			if err != nil {
				err = unreachable(fmt.Errorf("the outcome is not known; look at the partition with `portage explain` before asking again: %w", err))
			}
			return after, evidence, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (c *promoteCmd) show(r *promotionReport) error {
	if c.JSON {
		return printJSON(r)
	}
	if r.Done != nil {
		fmt.Printf("%s belongs to %s at epoch %d. Its log goes on at offset %d; the copy ends at %d, %d offsets are lost.\n", r.Partition, r.NewOwner, r.Epoch, r.Done.KnownEnd, r.Done.CopyEnd, r.Done.Lost)
		return nil
	}
	fmt.Printf("%s belongs to %s (%s), whose log is known to have reached %d.\n", r.Partition, r.Owner, r.OwnerState, r.KnownEnd)
	if r.Warning != "" {
		fmt.Printf("Mind that %s does not answer: %s.\n", r.Owner, r.Warning)
	}
	w := table()
	fmt.Fprintln(w, "BROKER\tEPOCH\tEND\tWHERE\tWHY\tCOPY")
	for _, copied := range r.Candidates {
		where := "trash"
		switch {
		case copied.ID == control.CopyInPlace:
			where = "in place"
		case copied.Quarantined:
			where = "quarantine"
		}
		epoch := "?"
		if copied.Epoch >= 0 {
			epoch = fmt.Sprint(copied.Epoch)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\n", copied.Broker, epoch, copied.End, where, copied.Reason, copied.ID)
	}
	if len(r.Candidates) == 0 {
		fmt.Fprintln(w, "no copy is left at the brokers that answer")
	}
	for _, id := range r.Silent {
		fmt.Fprintf(w, "%s\tdoes not answer\n", id)
	}
	return w.Flush()
}
