package main

import (
	"context"
	"errors"
	"fmt"

	"portage/metastore"
	"portage/planner"
)

type configCmd struct {
	Show configShowCmd `cmd:"" help:"List the settings."`
	Set  configSetCmd  `cmd:"" help:"Change one setting."`
}

type configShowCmd struct {
	storeFlags
	outputFlags
}

// Run lists the settings.
func (c *configShowCmd) Run(ctx context.Context) error {
	store, err := c.read(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	settings, err := store.Settings(ctx)
	if err != nil {
		return unreachable(err)
	}
	if c.JSON {
		return printJSON(settings)
	}
	w := table()
	fmt.Fprintln(w, "SETTING\tVALUE\tDEFAULT\tSET BY\tREASON\tMEANS")
	for _, s := range settings {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", s.Key, s.Value, s.Default, dash(s.SetBy), dash(s.Reason), s.Means)
	}
	return w.Flush()
}

type configSetCmd struct {
	Key    string `arg:"" help:"The setting, as retention.moves."`
	Value  string `arg:"" help:"Its value, as 30d."`
	Reason string `help:"Why, for the audit." required:""`
	storeFlags
	outputFlags
}

// Run changes a setting.
func (c *configSetCmd) Run(ctx context.Context) error {
	if c.Key == metastore.SettingPlanner {
		if _, err := planner.ParseSettings([]byte(c.Value)); err != nil {
			return err
		}
	}
	store, err := c.read(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	set, err := store.SetSetting(ctx, c.Key, c.Value, whoami(), c.Reason)
	if refused, ok := metastore.RefusedWith(err); ok {
		return errors.New(refused.Reason)
	}
	if err != nil {
		return unreachable(err)
	}
	if c.JSON {
		return printJSON(set)
	}
	fmt.Printf("%s is %s now\n", set.Key, set.Value)
	return nil
}
