package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"portage/metastore"
)

type brokerCmd struct {
	ReplaceStorage replaceStorageCmd `cmd:"" help:"Let a broker id go on with another data folder, because the old one is gone for good."`
}

type replaceStorageCmd struct {
	Broker     string        `arg:"" help:"The broker id."`
	Storage    string        `help:"Storage instance of the new data folder: the refused agent's log names it." required:""`
	AcceptLoss bool          `help:"Required: what only the old storage held stays closed until it is promoted from another copy, and may be lost."`
	Watch      time.Duration `help:"How long the broker's heartbeat must stand still before this is done." default:"10s" hidden:""`
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
