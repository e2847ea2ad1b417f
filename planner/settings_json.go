package planner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// ParseSettings reads settings over the defaults: what is absent has its default. Unknown keys and wrong values are errors.
func ParseSettings(raw []byte) (Settings, error) {
	s := DefaultSettings()
	if err := strictly(raw, &s); err != nil {
		return s, fmt.Errorf("the planner's settings can not be read: %w", err)
	}
	return s, s.Validate()
}

// strictly decodes one JSON value and refuses unknown keys.
func strictly(raw []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return fmt.Errorf("something follows the JSON object")
	}
	return nil
}

// MarshalJSON writes the goals by name.
func (g Goals) MarshalJSON() ([]byte, error) {
	named := map[string]GoalSettings{}
	for i, of := range g {
		named[Goal(i).String()] = of
	}
	return json.Marshal(named)
}

// UnmarshalJSON takes, for each goal that is named, false, true, or what differs from what is there (M40).
func (g *Goals) UnmarshalJSON(raw []byte) error {
	var named map[Goal]json.RawMessage
	if err := json.Unmarshal(raw, &named); err != nil {
		return err
	}
	for goal, value := range named {
		if text := string(bytes.TrimSpace(value)); text == "false" || text == "true" {
			g[goal].Enabled = text == "true"
			continue
		}
		if err := strictly(value, &g[goal]); err != nil {
			return fmt.Errorf("goal %s: %w", goal, err)
		}
	}
	return nil
}
