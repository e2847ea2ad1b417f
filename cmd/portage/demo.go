package main

import (
	"context"
	"errors"
)

type demoCmd struct{}

func (c *demoCmd) Run(ctx context.Context) error { return errors.New("not yet") }
