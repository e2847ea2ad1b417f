package planner

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"portage/internal/units"
)

func TestSettingsAreReadOverTheDefaults(t *testing.T) {
	for _, tc := range []struct {
		name, raw string
		want      func(s *Settings)
	}{
		{"nothing", `{}`, func(*Settings) {}},
		{"a goal off", `{"goals":{"NW_OUT":false}}`, func(s *Settings) { s.Goals[NWOut].Enabled = false }},
		{"a goal's deviation", `{"goals":{"DISK":{"deviation":0.1}}}`, func(s *Settings) { s.Goals[Disk].Deviation = 0.1 }},
		{"a goal's threshold", `{"goals":{"NW_IN":{"detectThreshold":"2MiB","trustedOnly":false}}}`, func(s *Settings) {
			s.Goals[NWIn].DetectThreshold, s.Goals[NWIn].TrustedOnly = 2<<20, false
		}},
		{"zero is zero", `{"maxInFlight":0,"maxActions":0,"margin":0,"brokerCooldown":"0s"}`, func(s *Settings) {
			s.MaxInFlight, s.MaxActions, s.Margin, s.BrokerCooldown = 0, 0, 0, 0
		}},
		{"limits", `{"brokerRate":"64MiB","partitionCooldown":"1h"}`, func(s *Settings) {
			s.BrokerRate, s.PartitionCooldown = 64<<20, units.Duration(time.Hour)
		}},
	} {
		want := DefaultSettings()
		tc.want(&want)
		got, err := ParseSettings([]byte(tc.raw))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v", tc.name, got, err)
		}
	}
}

func TestSettingsThatCanNotBeAreNamed(t *testing.T) {
	for raw, word := range map[string]string{
		`{"maxAction":1}`:                       "maxAction",
		`{"goals":{"CPU":true}}`:                "NW_IN",
		`{"goals":{"DISK":{"deviatoin":1}}}`:    "deviatoin",
		`{"goals":{"DISK":{"deviation":-1}}}`:   "deviation",
		`{"goals":{"DISK":{"priority":10}}}`:    "priority",
		`{"percentile":1.5}`:                    "percentile",
		`{"window":0}`:                          "window",
		`{"minValid":61}`:                       "minValid",
		`{"margin":2}`:                          "margin",
		`{"score":{"owned":-1}}`:                "score.owned",
		`{"assumedRate":0,"moveOverhead":"0s"}`: "assumedRate",
		`{"partitionCooldown":"-1m"}`:           "duration",
		`{} {}`:                                 "follows",
		`{"transfersPerBroker":-1,"maxInFlight":-1,"maxActions":-1}`: "maxActions",
	} {
		if _, err := ParseSettings([]byte(raw)); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, want it to name %q", raw, err, word)
		}
	}
}

func TestSettingsThatAreWrittenReadTheSame(t *testing.T) {
	want := DefaultSettings()
	want.Goals[NWOut].Enabled, want.Goals[Disk].Deviation, want.MaxActions = false, 0.5, 0
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseSettings(raw)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s reads %+v, %v", raw, got, err)
	}
}
