package metastore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Keys of the settings. A key without a row has its default.
const (
	SettingMovesRetention = "retention.moves"
	SettingAuditRetention = "retention.audit"
	SettingPlansRetention = "retention.plans"
	// SettingPaused keeps rebalances from starting moves and stops the copies of those they have started.
	SettingPaused  = "moves.paused"
	SettingPlanner = "planner"
	// SettingAutobalance says whether the fleet balances itself, and by what; see Autobalance.
	SettingAutobalance      = "autobalance"
	SettingAutobalanceEvery = "autobalance.every"
)

// LeastMovesRetention is the least time an ended move's row is kept. The rows that prove something are kept whatever
// their age (see Retain); the bound is for what asks late and would rather hear "ended" than "unknown": a repeat of a
// write by a worker that was stopped for days, an agent that is back from a repair, an operator on a Monday.
const LeastMovesRetention = 7 * 24 * time.Hour

// LeastAuditRetention is the least time a line of the audit is kept; nothing is decided on the audit.
const LeastAuditRetention = 24 * time.Hour

// Setting is one setting of the fleet as it is in force.
type Setting struct {
	Key     string     `json:"key"`
	Value   string     `json:"value"`
	Default string     `json:"default"`
	Means   string     `json:"means"`
	SetBy   string     `json:"setBy,omitempty"` // empty while the default is in force
	Reason  string     `json:"reason,omitempty"`
	SetAt   *time.Time `json:"setAt,omitempty"`
}

// settingRules are all settings there are, in the order they are shown. normal checks a value and returns how it is kept.
var settingRules = []struct {
	key, initial, means string
	normal              func(string) (string, error)
}{
	{SettingMovesRetention, "90d", "how long the rows of ended moves are kept; at least 7d, 0 keeps them for ever", retentionOf(LeastMovesRetention)},
	{SettingAuditRetention, "365d", "how long lines of the audit are kept; at least 1d, 0 keeps them for ever", retentionOf(LeastAuditRetention)},
	{SettingPlansRetention, "30d", "how long plans and the snapshots they were made of are kept; at least 1d, 0 keeps them for ever", retentionOf(LeastAuditRetention)},
	{SettingPaused, "false", "true keeps every rebalance of the fleet from starting moves and stops the copies of those it has started", trueOrFalse},
	{SettingAutobalance, AutobalanceOff, "whether the fleet balances itself: off, count (the number of partitions) or goals (all goals of the planner)", autobalanceMode},
	{SettingAutobalanceEvery, "10m", "the time between two passes of the autobalance for no other reason; 1m to 7d, 0 for none", autobalanceEvery},
	{SettingPlanner, "{}", "how plans are made, as JSON over the defaults; `portage plan --print-settings` shows all of it", jsonObject},
}

// Settings lists every setting as it is in force.
func (s *Store) Settings(ctx context.Context) ([]Setting, error) {
	type row struct {
		Key    string    `db:"key"`
		Value  string    `db:"value"`
		SetBy  string    `db:"set_by"`
		Reason string    `db:"reason"`
		SetAt  time.Time `db:"set_at"`
	}
	rows, err := collect[row](ctx, s.q, "SELECT key, value #>> '{}' AS value, set_by, reason, set_at FROM settings")
	if err != nil {
		return nil, err
	}
	var all []Setting
	for _, rule := range settingRules {
		setting := Setting{Key: rule.key, Value: rule.initial, Default: rule.initial, Means: rule.means}
		if i := slices.IndexFunc(rows, func(r row) bool { return r.Key == rule.key }); i >= 0 {
			setting.Value, setting.SetBy, setting.Reason, setting.SetAt = rows[i].Value, rows[i].SetBy, rows[i].Reason, &rows[i].SetAt
		}
		all = append(all, setting)
	}
	return all, nil
}

// SetSetting changes one setting and audits it. An unknown key and a value that is none are refused with
// CodeInvalidSetting.
func (s *Store) SetSetting(ctx context.Context, key, value, by, reason string) (Setting, error) {
	var set Setting
	refuse := func(format string, args ...any) (Setting, error) {
		return set, &Refused{Write: "SetSetting", Code: CodeInvalidSetting, Reason: fmt.Sprintf(format, args...)}
	}
	if strings.TrimSpace(reason) == "" {
		return refuse("say why with --reason: the audit keeps it")
	}
	for _, rule := range settingRules {
		if rule.key != key {
			continue
		}
		normal, err := rule.normal(value)
		if err != nil {
			return refuse("%s: %v", key, err)
		}
		set = Setting{Key: key, Value: normal, Default: rule.initial, Means: rule.means, SetBy: by, Reason: reason}
		err = s.guarded(ctx, "SetSetting", func(ctx context.Context, tx pgx.Tx) error {
			var at time.Time
			err := tx.QueryRow(ctx, `INSERT INTO settings (key, value, set_by, reason) VALUES ($1, to_jsonb($2::text), $3, $4)
				ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value, set_by = EXCLUDED.set_by, reason = EXCLUDED.reason, set_at = now() RETURNING set_at`, key, normal, by, reason).Scan(&at)
			if err != nil {
				return err
			}
			set.SetAt = &at
			return auditEntry{action: "set_setting", actor: by, reason: reason, after: map[string]string{"key": key, "value": normal}}.write(ctx, tx)
		})
		return set, err
	}
	var keys []string
	for _, rule := range settingRules {
		keys = append(keys, rule.key)
	}
	return refuse("there is no setting %q; there are %s", key, strings.Join(keys, ", "))
}

// jsonObject checks that a value is a JSON object, and writes it compactly. What it means is its reader's business.
func jsonObject(text string) (string, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &object); err != nil || object == nil {
		return "", fmt.Errorf("%q is not a JSON object", text)
	}
	var compact bytes.Buffer
	err := json.Compact(&compact, []byte(text))
	return compact.String(), err
}

// retentionOf checks a retention of at least the given time.
func retentionOf(least time.Duration) func(string) (string, error) {
	return func(text string) (string, error) {
		d, err := ParseRetention(text)
		if err != nil {
			return "", err
		}
		if d != 0 && d < least {
			return "", fmt.Errorf("%s is less than the least, %dd; 0 keeps for ever", text, least/(24*time.Hour))
		}
		return strings.TrimSpace(text), nil
	}
}

// ParseRetention reads "90d", or a duration as Go writes it ("36h"); "0" is for ever.
func ParseRetention(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n <= 36_500 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	} else if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return d, nil
	}
	return 0, fmt.Errorf("%q is not a time to keep something; write 90d, 36h, or 0 for ever", text)
}

func trueOrFalse(text string) (string, error) {
	if text != "true" && text != "false" {
		return "", fmt.Errorf("%q is neither true nor false", text)
	}
	return text, nil
}

// Pause says whether the moves of the fleet's rebalances are paused, by whom and why.
type Pause struct {
	Paused bool   `json:"paused"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Paused reads the fleet's pause.
func (s *Store) Paused(ctx context.Context) (Pause, error) {
	var p Pause
	err := s.q.QueryRow(ctx, "SELECT value #>> '{}' = 'true', set_by, reason FROM settings WHERE key = $1", SettingPaused).Scan(&p.Paused, &p.By, &p.Reason)
	if errors.Is(err, pgx.ErrNoRows) {
		return Pause{}, nil
	}
	return p, err
}
