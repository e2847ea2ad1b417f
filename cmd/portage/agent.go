package main

import (
	"context"
	"time"

	"portage/brokeragent"
	"portage/brokeragent/native"
	"portage/brokeragent/native/seglog"
	"portage/workflows/protocol"
)

type agentCmd struct {
	ID               string            `help:"Broker id, unique in the fleet." required:"" name:"id"`
	NodeID           int32             `help:"Kafka node id, unique in the fleet." required:""`
	Rack             string            `help:"Rack or zone of the broker."`
	KafkaListen      string            `help:"Where Kafka clients connect." default:"0.0.0.0:9092"`
	KafkaAdvertise   string            `help:"host:port told to clients; the listener's own when empty."`
	ControlListen    string            `help:"Where workers and other agents connect." default:"0.0.0.0:7070"`
	ControlAdvertise string            `help:"URL told to workers and other agents; the listener's own when empty."`
	Data             string            `help:"Folder of this broker's partitions." type:"path" required:""`
	LimitIn          protocol.ByteSize `help:"Bytes a second of all copies into this broker; 0 is no limit." default:"0"`
	LimitOut         protocol.ByteSize `help:"Bytes a second of all copies out of this broker; 0 is no limit." default:"0"`
	MaxTransfers     int               `help:"Copies at once, in each direction; 0 switches copies off." default:"2"`
	DiskFloor        protocol.ByteSize `help:"Bytes that copies leave free, for the partitions this broker owns." default:"64MiB"`
	SegmentSize      protocol.ByteSize `help:"Size at which a log begins a new segment." default:"128MiB"`
	TrashRetention   time.Duration     `help:"How long former copies are kept." default:"24h"`
	ParkFor          time.Duration     `help:"How long a produce request is held while its partition is frozen." default:"1s"`
	FreezeLease      time.Duration     `help:"A freeze that makes no progress ends after this." default:"10s"`
	MaxFreeze        time.Duration     `help:"A freeze ends after this in any case." default:"30s"`
	PromoteFence     time.Duration     `help:"While a move may promote over this broker, writes are acknowledged no longer than this after the last read of the metastore." default:"60s"`
	MaxFrozen        int               `help:"Partitions frozen at once; no freeze ends while the metastore is away." default:"2"`
	AllowUnfenced    bool              `help:"Accept orders without controller epoch and token, and count them."`
	storeFlags
	tokenFlags
}

// Run serves until it is told to stop.
func (c *agentCmd) Run(ctx context.Context, all *cli) error {
	logger := all.Log.logger()
	token, err := c.token()
	if err != nil {
		return err
	}
	config := brokeragent.Config{BrokerID: c.ID, NodeID: c.NodeID, Rack: c.Rack, KafkaListen: c.KafkaListen, KafkaAdvertise: c.KafkaAdvertise,
		ControlListen: c.ControlListen, ControlAdvertise: c.ControlAdvertise, Data: c.Data, Token: token, AllowUnfenced: c.AllowUnfenced,
		LimitInPerSec: float64(c.LimitIn), LimitOutPerSec: float64(c.LimitOut), MaxTransfers: c.MaxTransfers, DiskFloorBytes: int64(c.DiskFloor), Version: versionText(), Logger: logger,
		Log:    seglog.Options{SegmentBytes: int64(c.SegmentSize)},
		Limits: native.Limits{ParkFor: c.ParkFor, FreezeLease: c.FreezeLease, MaxFreeze: c.MaxFreeze, TrashRetention: c.TrashRetention, PromoteFence: c.PromoteFence, MaxFrozen: c.MaxFrozen}}
	if err := config.Validate(); err != nil {
		return &exitError{exitUsage, err}
	}
	store, err := c.waitOpen(ctx, logger)
	if err != nil {
		return err
	}
	defer store.Close()
	agent, err := brokeragent.New(config, store)
	if err != nil {
		return err
	}
	return agent.Run(ctx)
}
