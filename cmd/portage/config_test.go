package main

import (
	"slices"
	"testing"

	"portage/metastore"
)

// Every default of the planner is shown by itself, and who changed those that differ.
func TestThePlannersSettingsAreShownOneByOne(t *testing.T) {
	parts, err := plannerSettings([]metastore.Setting{{Key: "autobalance", Value: "off"}, {Key: metastore.SettingPlanner, Value: `{"margin":0.05,"goals":{"NW_OUT":false}}`, SetBy: "ops", Reason: "calm"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []metastore.Setting{
		{Key: "planner.margin", Value: "0.05", Default: "0.02", SetBy: "ops", Reason: "calm"},
		{Key: "planner.goals.NW_OUT.enabled", Value: "false", Default: "true", SetBy: "ops", Reason: "calm"},
		{Key: "planner.goals.DISK.detectThreshold", Value: "104857600", Default: "104857600"},
		{Key: "planner.window", Value: "60", Default: "60"},
		{Key: "planner.brokerCooldown", Value: "10m0s", Default: "10m0s"},
		{Key: "planner.score.historyHalf", Value: "1073741824", Default: "1073741824"},
	} {
		i := slices.IndexFunc(parts, func(s metastore.Setting) bool { return s.Key == want.Key })
		if i < 0 {
			t.Errorf("%s is not shown", want.Key)
			continue
		}
		if got := parts[i]; got.Value != want.Value || got.Default != want.Default || got.SetBy != want.SetBy || got.Reason != want.Reason {
			t.Errorf("%s is shown as %+v, want %+v", want.Key, got, want)
		}
	}
}
