//go:build portage_faults

// Package faultstest runs the story of a safety rule twice: once with the rule in force, once without it. The story must
// do harm without the rule, or its test would prove nothing.
package faultstest

import (
	"testing"

	"portage/internal/faults"
)

// Story tells one story of a rule. The story returns what harm it saw, "" when none: with the rule in force any harm fails
// the test, without it the missing harm does. Rules are switched for the whole process, so a test that uses Story does not
// run beside others.
func Story(t *testing.T, rule string, story func(t *testing.T) (harm string)) {
	t.Helper()
	t.Run("enforced", func(t *testing.T) {
		faults.SetRule(rule, true)
		if harm := story(t); harm != "" {
			t.Errorf("%s is in force, and yet: %s", rule, harm)
		}
	})
	t.Run("off", func(t *testing.T) {
		faults.SetRule(rule, false)
		t.Cleanup(func() { faults.SetRule(rule, true) })
		harm := story(t)
		if harm == "" && !t.Failed() {
			t.Errorf("the story does no harm without %s, so it proves nothing about it", rule)
		}
		t.Logf("without %s: %s", rule, harm)
	})
}
