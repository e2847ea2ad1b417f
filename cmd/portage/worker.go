package main

import (
	"context"
	"log/slog"
	"time"

	"portage/metastore"
	"portage/worker"
)

type workerCmd struct {
	ControllerID   string        `help:"Name of this deployment; all its workers share it." default:"portage"`
	MetricsListen  string        `help:"Where /metrics, /healthz and /readyz are served; empty is nowhere."`
	HTTPListen     string        `help:"Where the HTTP API is served, to who has the token; empty is nowhere." name:"http-listen"`
	HTTPCert       string        `help:"PEM file with the HTTP API's certificate and chain; read anew for each connection." name:"http-cert" placeholder:"FILE"`
	HTTPKey        string        `help:"PEM file with its key; with both the API speaks TLS, else plain HTTP." name:"http-key" placeholder:"FILE"`
	SuperviseEvery time.Duration `help:"How often the Supervisor looks for claims whose workflow is gone." default:"10s"`
	storeFlags
	tokenFlags
	temporalFlags
}

// Run serves until it is told to stop.
func (c *workerCmd) Run(ctx context.Context, all *cli) error {
	logger := all.Log.logger()
	token, err := c.token()
	if err != nil {
		return err
	}
	store, err := c.waitOpen(ctx, logger)
	if err != nil {
		return err
	}
	defer store.Close()
	registry := worker.NewRegistry()
	options := c.options()
	options.MetricsHandler = worker.TemporalMetrics(registry)
	temporal, err := worker.Dial(ctx, options, logger)
	if err != nil {
		return unreachable(err)
	}
	defer temporal.Close()
	return worker.Run(ctx, worker.Config{TaskQueue: c.TaskQueue, Namespace: c.TemporalNamespace, ControllerID: c.ControllerID, Token: token, MetricsListen: c.MetricsListen, HTTPListen: c.HTTPListen, HTTPCert: c.HTTPCert, HTTPKey: c.HTTPKey, Registry: registry,
		Store: store, Temporal: temporal, Logger: logger, SuperviseEvery: c.SuperviseEvery})
}

// waitFor is how long a starting service waits for its metastore.
const waitFor = 30 * time.Second

// waitOpen opens the metastore, waiting for one that is still starting: services of a fleet start in any order.
func (f storeFlags) waitOpen(ctx context.Context, logger *slog.Logger) (*metastore.Store, error) {
	deadline := time.Now().Add(waitFor)
	for {
		store, err := f.open(ctx, logger)
		if err == nil || time.Now().After(deadline) || ctx.Err() != nil {
			return store, err
		}
		logger.Warn("the metastore does not answer yet", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}
