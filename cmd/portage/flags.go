package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"portage/internal/operate"
	"portage/metastore"
)

type logFlags struct {
	Level  string `help:"Least level that is logged: debug, info, warn or error." enum:"debug,info,warn,error" default:"info"`
	Format string `help:"text or json." enum:"text,json" default:"text"`
}

func (f logFlags) logger() *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.Level)) // the enum has checked it
	options := &slog.HandlerOptions{Level: level}
	if f.Format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
}

type storeFlags struct {
	DSN                 string `help:"The metastore: a Postgres DSN." placeholder:"postgres://..." required:"" name:"dsn"`
	SingleNodeMetastore bool   `help:"Accept a Postgres without a synchronous standby (demo and tests)."`
}

func (f storeFlags) open(ctx context.Context, logger *slog.Logger) (*metastore.Store, error) {
	store, err := metastore.Open(ctx, f.DSN, metastore.Options{SingleNode: f.SingleNodeMetastore, Logger: logger})
	if err != nil {
		return nil, operate.MetastoreDown(err)
	}
	return store, nil
}

// read opens the metastore for a command that only reads, so it does not insist on a standby.
func (f storeFlags) read(ctx context.Context) (*metastore.Store, error) {
	f.SingleNodeMetastore = true
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return f.open(ctx, quiet())
}

type tokenFlags struct {
	TokenFile string `help:"File with the secret that agents and workers share." type:"path" required:""`
}

func (f tokenFlags) token() (string, error) {
	content, err := os.ReadFile(f.TokenFile)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(content))
	if len(token) < 16 {
		return "", fmt.Errorf("--token-file %s: the secret is shorter than 16 characters; make one with `openssl rand -hex 32`", f.TokenFile)
	}
	return token, nil
}

type temporalFlags struct {
	TemporalAddress   string `help:"Temporal's frontend." default:"127.0.0.1:7233" env:"PORTAGE_TEMPORAL_ADDRESS,TEMPORAL_ADDRESS"`
	TemporalNamespace string `help:"Temporal namespace." default:"default" env:"PORTAGE_TEMPORAL_NAMESPACE,TEMPORAL_NAMESPACE"`
	TaskQueue         string `help:"Task queue of the fleet's workers." default:"portage"`
}

func (f temporalFlags) options() client.Options {
	return client.Options{HostPort: f.TemporalAddress, Namespace: f.TemporalNamespace}
}

// dial connects for a command that a person waits for.
func (f temporalFlags) dial(ctx context.Context) (client.Client, error) {
	options := f.options()
	options.Logger = log.NewStructuredLogger(quiet())
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := client.DialContext(ctx, options)
	if err != nil {
		return nil, operate.TemporalDown(err, f.TemporalAddress)
	}
	return c, nil
}

// fleet connects for orders that are Temporal's; close ends the connection.
func (f temporalFlags) fleet(ctx context.Context) (fleet *operate.Fleet, stop func(), err error) {
	t, err := f.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	return &operate.Fleet{Temporal: t, Namespace: f.TemporalNamespace, TaskQueue: f.TaskQueue}, t.Close, nil
}

// fleet opens the metastore for orders that are its own; stop closes it.
func (f storeFlags) fleet(ctx context.Context) (fleet *operate.Fleet, stop func(), err error) {
	store, err := f.read(ctx)
	if err != nil {
		return nil, nil, err
	}
	return &operate.Fleet{Store: store}, store.Close, nil
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
