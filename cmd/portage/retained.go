package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"portage/brokeragent/control"
	"portage/metastore"
	"portage/workflows/protocol"
)

type trashCmd struct {
	List  trashListCmd  `cmd:"" help:"List the former copies that brokers keep."`
	Keep  trashKeepCmd  `cmd:"" help:"Keep a former copy from being swept and taken over, or let it go with --off."`
	Purge trashPurgeCmd `cmd:"" help:"Delete former copies now whose owners prove that they hold as much."`
}

type quarantineCmd struct {
	List   quarantineListCmd   `cmd:"" help:"List the former copies that hold records their owner does not have."`
	Export quarantineExportCmd `cmd:"" help:"Write the records that only a quarantined copy holds, one JSON object a line."`
	Purge  quarantinePurgeCmd  `cmd:"" help:"Delete a quarantined copy with the records that only it holds."`
}

// agentsFlags reach the agents through the metastore.
type agentsFlags struct {
	Broker string `help:"One broker; all when empty."`
	storeFlags
	tokenFlags
}

// brokers lists whom to ask.
func (f agentsFlags) brokers(ctx context.Context) (*control.Client, []metastore.Broker, error) {
	token, err := f.token()
	if err != nil {
		return nil, nil, err
	}
	store, err := f.read(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer store.Close()
	all, err := store.Brokers(ctx)
	if err != nil {
		return nil, nil, unreachable(err)
	}
	var chosen []metastore.Broker
	for _, b := range all {
		if f.Broker == "" || f.Broker == b.ID {
			chosen = append(chosen, b)
		}
	}
	if len(chosen) == 0 {
		return nil, nil, fmt.Errorf("there is no broker %q; `portage cluster members` lists them", f.Broker)
	}
	return control.NewClient(token), chosen, nil
}

// one is the broker that holds a copy.
func (f agentsFlags) one(ctx context.Context, id string, quarantined bool) (*control.Client, metastore.Broker, error) {
	agents, brokers, err := f.brokers(ctx)
	if err != nil {
		return nil, metastore.Broker{}, err
	}
	var silent []error
	for _, b := range brokers {
		kept, err := agents.Retained(ctx, b.ControlURL)
		if err != nil {
			silent = append(silent, fmt.Errorf("%s does not answer: %w", b.ID, err))
			continue
		}
		for _, c := range kept.Copies {
			if c.ID == id && c.Quarantined == quarantined {
				return agents, b, nil
			}
		}
	}
	if len(silent) > 0 {
		return nil, metastore.Broker{}, unreachable(fmt.Errorf("copy %s was not found: %w", id, errors.Join(silent...)))
	}
	return nil, metastore.Broker{}, fmt.Errorf("no broker has a copy %s there", id)
}

// listed is a copy with the broker that keeps it.
type listed struct {
	Broker string `json:"broker"`
	control.RetainedCopy
}

// listRetained prints what all brokers keep, of one kind, and says which did not answer.
func listRetained(ctx context.Context, f agentsFlags, asJSON, quarantined bool) error {
	agents, brokers, err := f.brokers(ctx)
	if err != nil {
		return err
	}
	all := []listed{}
	var silent []error
	for _, b := range brokers {
		kept, err := agents.Retained(ctx, b.ControlURL)
		if err != nil {
			silent = append(silent, fmt.Errorf("%s does not answer: %w", b.ID, err))
			continue
		}
		for _, c := range kept.Copies {
			if c.Quarantined == quarantined {
				all = append(all, listed{b.ID, c})
			}
		}
	}
	if asJSON {
		if err := printJSON(all); err != nil {
			return err
		}
	} else {
		printRetained(all, quarantined)
	}
	if len(silent) > 0 {
		return unreachable(errors.Join(silent...))
	}
	return nil
}

func printRetained(all []listed, quarantined bool) {
	w := table()
	defer w.Flush()
	if quarantined {
		fmt.Fprintln(w, "BROKER\tPARTITION\tEPOCH\tONLY HERE\tFROM\tEND\tSIZE\tSINCE\tCOPY")
		for _, c := range all {
			fmt.Fprintf(w, "%s\t%s/%d\t%d\t%d\t%d\t%d\t%s\t%s ago\t%s\n", c.Broker, c.Topic, c.Partition, c.Epoch, c.Records, c.Divergence, c.End, protocol.ByteSize(c.Bytes),
				time.Since(c.At).Round(time.Second), c.ID)
		}
		return
	}
	fmt.Fprintln(w, "BROKER\tPARTITION\tEPOCH\tEND\tSIZE\tWHY\tSINCE\tSTATE\tCOPY")
	for _, c := range all {
		state := "not judged yet"
		switch {
		case c.Hold:
			state = "kept by an operator"
		case c.Judged:
			state = "its owner has it all"
		}
		fmt.Fprintf(w, "%s\t%s/%d\t%d\t%d\t%s\t%s\t%s ago\t%s\t%s\n", c.Broker, c.Topic, c.Partition, c.Epoch, c.End, protocol.ByteSize(c.Bytes), c.Reason,
			time.Since(c.At).Round(time.Second), state, c.ID)
	}
}

type trashListCmd struct {
	agentsFlags
	outputFlags
}

// Run lists trash.
func (c *trashListCmd) Run(ctx context.Context) error {
	return listRetained(ctx, c.agentsFlags, c.JSON, false)
}

type trashKeepCmd struct {
	Copy string `arg:"" help:"The copy's id, as trash list shows it."`
	Off  bool   `help:"Let it go."`
	agentsFlags
}

// Run sets or lifts the hold on one copy.
func (c *trashKeepCmd) Run(ctx context.Context) error {
	agents, broker, err := c.one(ctx, c.Copy, false)
	if err != nil {
		return err
	}
	if err := agents.HoldTrash(ctx, broker.ControlURL, control.HoldRequest{ID: c.Copy, Hold: !c.Off}); err != nil {
		return err
	}
	if c.Off {
		fmt.Printf("%s on %s may be swept and taken over again\n", c.Copy, broker.ID)
	} else {
		fmt.Printf("%s on %s is kept until `portage trash keep %s --off`\n", c.Copy, broker.ID, c.Copy)
	}
	return nil
}

type trashPurgeCmd struct {
	Copy       string `help:"Delete this one copy, as trash list shows it, whatever its owner says."`
	AcceptLoss bool   `help:"With --copy: nothing proves that its owner holds as much."`
	agentsFlags
}

// Run sweeps at once what may be swept, or deletes the one copy that was named.
func (c *trashPurgeCmd) Run(ctx context.Context) error {
	if c.Copy != "" {
		if !c.AcceptLoss {
			return &exitError{exitUsage, errors.New("nothing proves that the owner holds what this copy holds: pass --accept-loss when it may go all the same")}
		}
		agents, broker, err := c.one(ctx, c.Copy, false)
		if err != nil {
			return err
		}
		if err := agents.PurgeCopy(ctx, broker.ControlURL, c.Copy); err != nil {
			return err
		}
		fmt.Printf("%s is deleted from %s\n", c.Copy, broker.ID)
		return nil
	}
	agents, brokers, err := c.brokers(ctx)
	if err != nil {
		return err
	}
	var silent []error
	for _, b := range brokers {
		answer, err := agents.PurgeTrash(ctx, b.ControlURL)
		if err != nil {
			silent = append(silent, fmt.Errorf("%s does not answer: %w", b.ID, err))
			continue
		}
		fmt.Printf("%s: %d deleted, %d kept\n", b.ID, answer.Deleted, len(answer.Kept))
		for _, why := range answer.Kept {
			fmt.Println("  ", why)
		}
	}
	if len(silent) > 0 {
		return unreachable(errors.Join(silent...))
	}
	return nil
}

type quarantineListCmd struct {
	agentsFlags
	outputFlags
}

// Run lists quarantine.
func (c *quarantineListCmd) Run(ctx context.Context) error {
	return listRetained(ctx, c.agentsFlags, c.JSON, true)
}

type quarantineExportCmd struct {
	Copy string `arg:"" help:"The copy's id, as quarantine list shows it."`
	To   string `help:"File to write; standard output when empty." type:"path"`
	agentsFlags
}

// Run writes the records; a file appears under its name only when it is whole.
func (c *quarantineExportCmd) Run(ctx context.Context) error {
	agents, broker, err := c.one(ctx, c.Copy, true)
	if err != nil {
		return err
	}
	body, err := agents.ExportQuarantine(ctx, broker.ControlURL, c.Copy)
	if err != nil {
		return err
	}
	defer body.Close()
	if c.To == "" {
		if _, err := io.Copy(os.Stdout, body); err != nil {
			return unreachable(fmt.Errorf("the export broke off and is not whole: %w", err))
		}
		return nil
	}
	file, err := os.CreateTemp(filepath.Dir(c.To), ".export-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // no-op after the rename
	size, err := io.Copy(file, body)
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("the export broke off, nothing was written to %s: %w", c.To, err)
	}
	if err := os.Rename(file.Name(), c.To); err != nil {
		return err
	}
	fmt.Printf("%s written to %s\n", protocol.ByteSize(size), c.To)
	return nil
}

type quarantinePurgeCmd struct {
	Copy       string `arg:"" help:"The copy's id, as quarantine list shows it."`
	AcceptLoss bool   `help:"The records that only this copy holds are gone then." required:""`
	agentsFlags
}

// Run deletes one quarantined copy.
func (c *quarantinePurgeCmd) Run(ctx context.Context) error {
	agents, broker, err := c.one(ctx, c.Copy, true)
	if err != nil {
		return err
	}
	if err := agents.PurgeQuarantine(ctx, broker.ControlURL, control.QuarantinePurge{ID: c.Copy, AcceptLoss: c.AcceptLoss}); err != nil {
		return err
	}
	fmt.Printf("%s is deleted from %s\n", c.Copy, broker.ID)
	return nil
}
