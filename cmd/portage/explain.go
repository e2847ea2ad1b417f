package main

import (
	"context"
	"errors"
	"os"
	"time"

	"portage/internal/inspect"
)

type explainCmd struct {
	Partition partitionArg `arg:"" help:"The partition, as orders/3."`
	lookFlags
	outputFlags
}

// Run explains one partition with whatever answers.
func (c *explainCmd) Run(ctx context.Context) error {
	sources, closeAll, err := c.sources(ctx)
	defer closeAll()
	if err != nil {
		return err
	}
	explained, err := inspect.Explain(ctx, sources, c.Partition.topic, c.Partition.number)
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(explained)
	} else {
		err = explained.Write(os.Stdout, time.Now())
	}
	if err == nil && explained.Row == nil && explained.Move == nil {
		return unreachable(errors.New("neither the metastore nor Temporal says anything of " + c.Partition.String()))
	}
	return err
}
