package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"portage/internal/operate"
	"portage/internal/units"
	"portage/metastore"
	"portage/workflows/protocol"
)

type brokerCmd struct {
	Drain          drainCmd          `cmd:"" help:"Let a broker take no more partitions, or take that back."`
	Set            setCmd            `cmd:"" help:"Say how much of its disk a broker may use, what its network carries, and how its share weighs."`
	Remove         removeCmd         `cmd:"" help:"Take an empty, draining broker out of the fleet for good."`
	ReplaceStorage replaceStorageCmd `cmd:"" help:"Let a broker id go on with another data folder, because the old one is gone for good."`
}

type drainCmd struct {
	Broker string     `arg:"" help:"The broker id."`
	Cancel bool       `help:"Let it take partitions again."`
	Reason reasonText `help:"Why, for the audit." required:""`
	storeFlags
}

// Run marks the broker. It goes on serving what it owns.
func (c *drainCmd) Run(ctx context.Context) error {
	return c.change(ctx, func(fleet *operate.Fleet) (string, error) {
		err := fleet.Drain(ctx, c.Broker, !c.Cancel, whoami(), c.Reason.String())
		if c.Cancel {
			return fmt.Sprintf("broker %s takes partitions again", c.Broker), err
		}
		return fmt.Sprintf("broker %s takes no more partitions and serves what it has; move that away, then `portage broker remove %s --reason TEXT`", c.Broker, c.Broker), err
	})
}

type setCmd struct {
	Broker string             `arg:"" help:"The broker id."`
	Disk   *protocol.ByteSize `help:"How much of its disk it may use, as 2TiB; 0 takes back what was set." placeholder:"SIZE"`
	Net    *string            `help:"What its network carries in one direction, as 1Gbit or 100MiB a second; 0 takes back what was set." placeholder:"RATE"`
	Weight *float64           `help:"Its share of everything, 1 being that of a broker that has none set; 0 takes back what was set."`
	Reason reasonText         `help:"Why, for the audit." required:""`
	storeFlags
	outputFlags
}

// Run sets what is named and says what is in force.
func (c *setCmd) Run(ctx context.Context) error {
	change := metastore.CapacityChange{Broker: c.Broker, Weight: c.Weight, By: whoami(), Reason: c.Reason.String()}
	if c.Disk != nil {
		bytes := int64(*c.Disk)
		change.DiskBytes = &bytes
	}
	if c.Net != nil {
		rate, err := units.ParseRate(*c.Net)
		if err != nil {
			return &exitError{exitUsage, fmt.Errorf("--net: %w", err)}
		}
		bytes := int64(rate)
		change.NetBytesPerSec = &bytes
	}
	fleet, stop, err := c.fleet(ctx)
	if err != nil {
		return err
	}
	defer stop()
	set, err := fleet.SetCapacity(ctx, change)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(set)
	}
	fmt.Printf("of broker %s is set now: %s; plans made from now on take it into account\n", c.Broker, dash(capacityText(set)))
	return nil
}

// capacityText is what is set of a broker; empty when nothing is.
func capacityText(c metastore.Capacity) string {
	var set []string
	if c.DiskBytes > 0 {
		set = append(set, "disk "+protocol.ByteSize(c.DiskBytes).String())
	}
	if c.NetBytesPerSec > 0 {
		set = append(set, "network "+protocol.ByteSize(c.NetBytesPerSec).String()+"/s")
	}
	if c.Weight > 0 {
		set = append(set, fmt.Sprintf("weight %g", c.Weight))
	}
	return strings.Join(set, ", ")
}

type removeCmd struct {
	Broker     string     `arg:"" help:"The broker id."`
	MinBrokers int        `help:"Refuse to leave fewer brokers that take partitions." default:"3"`
	Reason     reasonText `help:"Why, for the audit." required:""`
	storeFlags
}

// Run removes the broker, or says what it is still needed for.
func (c *removeCmd) Run(ctx context.Context) error {
	return c.change(ctx, func(fleet *operate.Fleet) (string, error) {
		err := fleet.RemoveBroker(ctx, metastore.RemoveRequest{Broker: c.Broker, MinBrokers: c.MinBrokers, By: whoami(), Reason: c.Reason.String()})
		return fmt.Sprintf("broker %s is out of the fleet; its agent stops by itself and its id is not used again", c.Broker), err
	})
}

// change makes one write to the metastore and prints what it did.
func (f storeFlags) change(ctx context.Context, write func(*operate.Fleet) (done string, err error)) error {
	fleet, stop, err := f.fleet(ctx)
	if err != nil {
		return err
	}
	defer stop()
	done, err := write(fleet)
	if err == nil {
		fmt.Println(done)
	}
	return err
}

type replaceStorageCmd struct {
	Broker     string        `arg:"" help:"The broker id."`
	Storage    string        `help:"Storage instance of the new data folder: the refused agent's log names it." required:""`
	AcceptLoss bool          `help:"Required: what only the old storage held stays closed until it is promoted from another copy, and may be lost."`
	Watch      time.Duration `help:"How long the broker's heartbeat must stand still before this is done." default:"10s"`
	storeFlags
}

// minWatch is well above the heartbeat's interval.
const minWatch = 5 * time.Second

// Run waits until the broker's heartbeat has stood still, and replaces the storage.
func (c *replaceStorageCmd) Run(ctx context.Context) error {
	storage, err := uuid.Parse(c.Storage)
	if err != nil {
		return &exitError{exitUsage, fmt.Errorf("--storage %q is not a storage instance; the refused agent's log names it", c.Storage)}
	}
	if !c.AcceptLoss {
		return &exitError{exitUsage, errors.New("partitions that were kept on the old storage stay closed, and what only it held is lost: pass --accept-loss when that is so")}
	}
	c.SingleNodeMetastore = true
	store, err := c.open(ctx, quiet())
	if err != nil {
		return err
	}
	defer store.Close()
	known, err := store.FindBroker(ctx, c.Broker)
	if err != nil {
		return unreachable(err)
	}
	if known == nil {
		return fmt.Errorf("there is no broker %q; `portage cluster members` lists them", c.Broker)
	}
	if known.StorageInstance == storage {
		fmt.Printf("broker %s has storage %s already; start its agent\n", c.Broker, storage)
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(max(c.Watch, minWatch)):
	}
	owned, err := store.ReplaceStorage(ctx, metastore.ReplaceStorage{Broker: c.Broker, Old: known.StorageInstance, New: storage, Heartbeat: known.Heartbeat, By: "portage broker replace-storage"})
	if metastore.IsUnknown(err) {
		return unreachable(err)
	}
	if err != nil {
		return err
	}
	fmt.Printf("broker %s goes on with storage %s; start its agent\n", c.Broker, storage)
	if owned > 0 {
		fmt.Printf("%d partitions that were kept on the old storage stay closed (storage_changed): promote another copy of each, or delete their topics\n", owned)
	}
	return nil
}
