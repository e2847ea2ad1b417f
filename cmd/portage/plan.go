package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"portage/brokeragent"
	"portage/brokeragent/control"
	"portage/internal/fleetview"
	"portage/internal/operate"
	"portage/internal/units"
	"portage/metastore"
	"portage/planner"
)

type planCmd struct {
	Snapshot      string        `help:"Plan on this file, whatever --dsn says: --save writes one. - reads it from stdin." placeholder:"FILE"`
	Save          string        `help:"Write the snapshot that was planned on, with brokers added and removed, to this file." placeholder:"FILE" type:"path"`
	DSN           string        `help:"Plan on the fleet as it is: the metastore, a Postgres DSN." placeholder:"postgres://..." name:"dsn"`
	TokenFile     string        `help:"File with the fleet's secret: agents say whether they are alive, and what they have." type:"path"`
	Sample        time.Duration `help:"Measure the fleet's rates for so long, beside what its workers have sampled." placeholder:"20s"`
	AddBroker     []string      `help:"What if this broker were there: b9:disk=2TiB,net=1Gbit,rack=a,weight=1. May be given more than once." placeholder:"ID:disk=SIZE,..." sep:"none"`
	RemoveBroker  []string      `help:"What if this broker had to give everything away. May be given more than once." placeholder:"ID"`
	Settings      string        `help:"A JSON file with what differs from the default settings; by default those of the fleet." placeholder:"FILE" type:"existingfile"`
	PrintSettings bool          `help:"Print all settings in force as JSON, and nothing else."`
	CountOnly     bool          `help:"Balance the number of partitions alone, exactly and with the fewest moves."`
	MaxActions    *int          `help:"How many partitions to move at most, whatever the settings say; 0 for no cap." placeholder:"N"`
	All           bool          `help:"List every action, not the first 40 only."`
	outputFlags
}

// Run plans and tells. It changes nothing but the file of --save.
func (c *planCmd) Run(ctx context.Context) error {
	added, err := parseBrokers(c.AddBroker)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	var store *metastore.Store
	if c.DSN != "" && c.Snapshot == "" {
		if store, err = (storeFlags{DSN: c.DSN}).read(ctx); err != nil {
			return err
		}
		defer store.Close()
	}
	settings, err := c.settings(ctx, store)
	if err != nil {
		return err
	}
	if c.PrintSettings {
		return printJSON(settings)
	}
	snapshot, err := c.read(ctx, store, settings)
	if err != nil {
		return err
	}
	for _, b := range added {
		if snapshot, err = snapshot.WithBroker(b); err != nil {
			return err
		}
	}
	for _, id := range c.RemoveBroker {
		if snapshot, err = snapshot.WithBrokerDraining(id); err != nil {
			return err
		}
	}
	if c.Save != "" {
		if err := saveSnapshot(c.Save, snapshot); err != nil {
			return err
		}
	}
	plan, err := operate.Decide(snapshot, settings, c.CountOnly)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(plan)
	}
	return writePlan(os.Stdout, plan, c.All)
}

// settings are the defaults, what the fleet has set, or what the file says over the defaults.
func (c *planCmd) settings(ctx context.Context, store *metastore.Store) (planner.Settings, error) {
	raw := []byte("{}")
	var err error
	switch {
	case c.Settings != "":
		if raw, err = os.ReadFile(c.Settings); err != nil {
			return planner.Settings{}, err
		}
	case store != nil:
		all, err := store.Settings(ctx)
		if err != nil {
			return planner.Settings{}, unreachable(err)
		}
		for _, s := range all {
			if s.Key == metastore.SettingPlanner {
				raw = []byte(s.Value)
			}
		}
	}
	settings, err := planner.ParseSettings(raw)
	if err != nil {
		return settings, operate.InvalidSetting(err)
	}
	if c.MaxActions != nil {
		settings.MaxActions = *c.MaxActions
		if err := settings.Validate(); err != nil {
			return settings, &exitError{exitUsage, err}
		}
	}
	return settings, nil
}

func (c *planCmd) read(ctx context.Context, store *metastore.Store, settings planner.Settings) (*planner.Snapshot, error) {
	switch {
	case c.Snapshot != "" && c.Sample != 0:
		return nil, &exitError{exitUsage, errors.New("--sample measures a fleet; the snapshot in a file has the rates it has")}
	case c.Snapshot == "-":
		return planner.ReadSnapshot(os.Stdin)
	case c.Snapshot != "":
		file, err := os.Open(c.Snapshot)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		return planner.ReadSnapshot(file)
	case store == nil:
		return nil, &exitError{exitUsage, errors.New("give --snapshot FILE to plan on a file, or --dsn and --token-file to plan on a fleet")}
	}
	token, err := tokenFlags{c.TokenFile}.token()
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	if c.Sample != 0 && c.Sample <= brokeragent.LoadsTold {
		return nil, &exitError{exitUsage, fmt.Errorf("--sample %s is too short: agents tell their figures every %s; measure for 20s", c.Sample, brokeragent.LoadsTold)}
	}
	if c.Sample > 0 {
		fmt.Fprintf(os.Stderr, "measuring rates for %s\n", c.Sample)
		if err := c.sample(ctx, store, settings); err != nil {
			return nil, err
		}
	}
	snapshot, err := fleetview.Read(ctx, store, control.NewClient(token), settings)
	if err != nil {
		if ctx.Err() == nil {
			err = unreachable(err)
		}
		return nil, err
	}
	if snapshot.Untrusted(planner.Disk) {
		fmt.Fprintln(os.Stderr, "no loads were sampled yet, so only the number of partitions is planned with; measure with --sample 20s, or let a worker run for some minutes")
	}
	return snapshot, nil
}

// sample takes a pass now and another after a while. Passes are kept in the metastore like those of the workers.
func (c *planCmd) sample(ctx context.Context, store *metastore.Store, settings planner.Settings) error {
	for _, wait := range []time.Duration{0, c.Sample} {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		if _, err := store.SampleLoads(ctx, time.Second, settings.Window+1); err != nil {
			return unreachable(err)
		}
	}
	return nil
}

// saveSnapshot writes the whole file or leaves what was there.
func saveSnapshot(name string, s *planner.Snapshot) (err error) {
	file, err := os.Create(name + ".part")
	if err != nil {
		return err
	}
	_, err = s.WriteTo(file)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(name+".part"))
	}
	return os.Rename(name+".part", name)
}

// parseBrokers reads b9:disk=2TiB,net=1Gbit,rack=a,weight=1; all after the id may be left out.
func parseBrokers(texts []string) ([]planner.Broker, error) {
	var all []planner.Broker
	for _, text := range texts {
		id, rest, _ := strings.Cut(text, ":")
		b := planner.Broker{ID: id, Alive: true}
		for _, part := range strings.FieldsFunc(rest, func(r rune) bool { return r == ',' }) {
			name, value, _ := strings.Cut(part, "=")
			var size units.ByteSize
			var err error
			switch name {
			case "disk":
				size, err = units.ParseByteSize(value)
				b.DiskBytes, b.DiskFreeBytes = int64(size), int64(size)
			case "net":
				size, err = units.ParseRate(value)
				b.NetBytesPerSec = int64(size)
			case "rack":
				b.Rack = value
			case "weight":
				if _, err = fmt.Sscanf(value, "%g", &b.Weight); err != nil || b.Weight <= 0 {
					err = fmt.Errorf("the weight %q is not a number above 0", value)
				}
			default:
				err = fmt.Errorf("%q is none of disk, net, rack, weight", name)
			}
			if err != nil {
				return nil, fmt.Errorf("--add-broker %s: %w", text, err)
			}
		}
		all = append(all, b)
	}
	return all, nil
}
