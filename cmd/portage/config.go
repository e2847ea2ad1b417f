package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"portage/metastore"
	"portage/planner"
)

type configCmd struct {
	Show configShowCmd `cmd:"" default:"withargs" help:"List the settings, those of the planner too."`
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
	parts, err := plannerSettings(settings)
	if err != nil {
		return err
	}
	settings = append(settings, parts...)
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

// plannerSettings are the parts of the one setting that the planner's are kept in, each with the value in force and its default.
func plannerSettings(all []metastore.Setting) (parts []metastore.Setting, err error) {
	i := slices.IndexFunc(all, func(s metastore.Setting) bool { return s.Key == metastore.SettingPlanner })
	if i < 0 {
		return nil, nil
	}
	whole := all[i]
	inForce, err := planner.ParseSettings([]byte(whole.Value))
	if err != nil {
		return nil, err
	}
	values, err := flat(inForce)
	if err != nil {
		return nil, err
	}
	defaults, err := flat(planner.DefaultSettings())
	if err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		part := metastore.Setting{Key: whole.Key + "." + key, Value: values[key], Default: defaults[key], Means: "see docs/planner.md"}
		if part.Value != part.Default {
			part.SetBy, part.Reason, part.SetAt = whole.SetBy, whole.Reason, whole.SetAt
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// flat are the planner's settings by their paths, as goals.DISK.deviation.
func flat(s planner.Settings) (map[string]string, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	var walk func(path string, raw json.RawMessage)
	walk = func(path string, raw json.RawMessage) {
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil { // a value
			all[path] = strings.Trim(string(raw), `"`)
			return
		}
		for key, value := range object {
			walk(strings.TrimPrefix(path+"."+key, "."), value)
		}
	}
	walk("", raw)
	return all, nil
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
