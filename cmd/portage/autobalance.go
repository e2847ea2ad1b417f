package main

import (
	"context"
	"fmt"
	"time"

	"portage/metastore"
)

type autobalanceCmd struct {
	temporalFlags
	outputFlags
}

// Run shows the state of the fleet's Autobalance.
func (c *autobalanceCmd) Run(ctx context.Context) error {
	fleet, stop, err := c.fleet(ctx)
	if err != nil {
		return err
	}
	defer stop()
	s, err := fleet.AutobalanceStatus(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(s)
	}
	switch s.Mode {
	case "":
		fmt.Println("it has not looked at the fleet yet: the metastore does not answer, or the worker has just started")
	case metastore.AutobalanceOff:
		fmt.Println("off: nothing moves unless a person says so\nswitch it on: portage config set autobalance count --reason TEXT")
	default:
		fmt.Printf("on, by %s, every %s\n", s.Mode, time.Duration(s.Every))
	}
	if r := s.Running; r != nil {
		fmt.Printf("a pass runs since %s, because %s\nwatch it: portage rebalance status\n", r.Began.Format(time.RFC3339), r.Why)
	}
	if s.Blocked != "" {
		fmt.Printf("a pass waits: %s (%s)\n%s\n", s.BlockedReason, s.Blocked, s.Unblock)
	}
	if l := s.Last; l != nil {
		fmt.Printf("last pass at %s, because %s: %s\n", l.Began.Format(time.RFC3339), l.Why, l.Outcome)
		if l.Counts.Moved > 0 {
			fmt.Printf("undo: portage rebalance --undo %s --reason TEXT\n", l.Rebalance)
		}
	}
	if s.Due != nil {
		fmt.Printf("the next begins at %s at the latest, because %s\n", s.Due.Format(time.RFC3339), s.DueWhy)
	}
	for _, line := range s.Declined {
		fmt.Println(line)
	}
	return nil
}
