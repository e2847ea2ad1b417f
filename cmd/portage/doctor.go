package main

import (
	"context"
	"errors"
	"os"

	"portage/internal/inspect"
)

type doctorCmd struct {
	SingleNodeMetastore bool `help:"A Postgres without a synchronous standby is accepted here (demo and tests)."`
	lookFlags
	outputFlags
}

// Run examines the fleet. Exit 1 when a check fails, 3 when nothing answers.
func (c *doctorCmd) Run(ctx context.Context) error {
	sources, closeAll, err := c.sources(ctx)
	defer closeAll()
	if err != nil {
		return err
	}
	examined := inspect.Doctor{Sources: sources, Namespace: c.TemporalNamespace, SingleNode: c.SingleNodeMetastore}.Examine(ctx)
	if c.JSON {
		err = printJSON(examined)
	} else {
		err = examined.Write(os.Stdout)
	}
	switch {
	case err != nil:
		return err
	case !examined.Answered:
		return unreachable(errors.New("nothing answers: neither Temporal, nor the metastore, nor an agent"))
	case examined.Worst() == inspect.Fail:
		return errors.New("a check fails; the last column of its line says what to do")
	}
	return nil
}
