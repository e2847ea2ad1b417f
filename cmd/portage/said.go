package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"portage/internal/operate"
	"portage/metastore"
)

// reasonText is why something is done. Blanks say nothing.
type reasonText string

// UnmarshalText takes what says something.
func (r *reasonText) UnmarshalText(text []byte) error {
	said := strings.TrimSpace(string(text))
	if said == "" {
		return errors.New("it says nothing; write why: it is kept with what is done")
	}
	*r = reasonText(said)
	return nil
}

func (r reasonText) String() string { return string(r) }

// mustSay is what the command line lacks that does something only with a reason.
func (r reasonText) mustSay() error {
	if r == "" {
		return &exitError{exitUsage, errors.New("say why with --reason TEXT: it is kept with what is done; only a dry run needs none")}
	}
	return nil
}

// steerFlags are those of orders that Temporal carries out: with a metastore they are a line of its audit, too.
type steerFlags struct {
	DSN string `help:"The metastore, for a line of its audit; without, who and why stand in the workflow's history alone." placeholder:"postgres://..." name:"dsn"`
	temporalFlags
}

// fleet connects for an order, and records it. A metastore that does not answer keeps nobody from steering what moves: who and why stand in
// the workflow's history as well.
func (f steerFlags) fleet(ctx context.Context, order metastore.Order) (fleet *operate.Fleet, stop func(), err error) {
	fleet, closeTemporal, err := f.temporalFlags.fleet(ctx)
	if err != nil || f.DSN == "" {
		return fleet, closeTemporal, err
	}
	order.Action, order.By = "cli_"+order.Action, whoami()
	fleet.Store, err = storeFlags{DSN: f.DSN}.read(ctx)
	if err == nil && order.Reason != "" { // a dry run that says nothing leaves no line
		if err = fleet.Record(ctx, order); err != nil {
			fleet.Store.Close()
			fleet.Store = nil
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "portage: the audit has no line of this order, only its workflow's history says who gave it:", err)
		return fleet, closeTemporal, nil
	}
	return fleet, func() { fleet.Store.Close(); closeTemporal() }, nil
}
