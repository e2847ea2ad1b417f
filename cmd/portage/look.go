package main

import (
	"context"

	"portage/brokeragent/control"
	"portage/internal/inspect"
	"portage/metastore"
)

// lookFlags are for commands that look at whatever answers: none of them is required, and what is missing is not asked.
type lookFlags struct {
	DSN       string `help:"The metastore: a Postgres DSN." placeholder:"postgres://..." name:"dsn"`
	TokenFile string `help:"File with the fleet's secret, to ask the agents." type:"path"`
	temporalFlags
}

// sources opens all that can be opened. What is away is told in the sources, not as an error.
func (f lookFlags) sources(ctx context.Context) (s inspect.Sources, closeAll func(), err error) {
	s.TaskQueue = f.TaskQueue
	switch {
	case f.DSN == "":
		s.StoreAway = "no --dsn was given"
	default:
		ask, cancel := context.WithTimeout(ctx, inspect.AskFor)
		if s.Store, err = metastore.Look(ask, f.DSN); err != nil {
			s.StoreAway = err.Error()
		}
		cancel()
	}
	if f.TokenFile == "" {
		s.AgentsAway = "no --token-file was given"
	} else {
		token, err := tokenFlags{f.TokenFile}.token()
		if err != nil {
			return s, func() {}, &exitError{exitUsage, err}
		}
		s.Agents = control.NewClient(token)
	}
	if s.Temporal, err = f.dial(ctx); err != nil {
		s.TemporalAway = err.Error()
	}
	return s, func() {
		if s.Store != nil {
			s.Store.Close()
		}
		if s.Temporal != nil {
			s.Temporal.Close()
		}
	}, nil
}
