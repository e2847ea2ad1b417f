package window

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"
)

func moment(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestAWindowIsWhatTheClockOnTheWallShows(t *testing.T) {
	for _, tc := range []struct {
		name, cron string
		length     time.Duration
		zone       string
		at         string
		open       bool
		until      string
		then       string
	}{
		{"before it", "0 1 * * *", 4 * time.Hour, "Europe/Berlin", "2026-01-10T23:59:59Z", false, "2026-01-11T01:00:00+01:00", "2026-01-11T05:00:00+01:00"},
		{"from its first moment on", "0 1 * * *", 4 * time.Hour, "Europe/Berlin", "2026-01-11T00:00:00Z", true, "2026-01-11T05:00:00+01:00", "2026-01-12T01:00:00+01:00"},
		{"until its last", "0 1 * * *", 4 * time.Hour, "Europe/Berlin", "2026-01-11T03:59:59Z", true, "2026-01-11T05:00:00+01:00", "2026-01-12T01:00:00+01:00"},
		{"its end is outside", "0 1 * * *", 4 * time.Hour, "Europe/Berlin", "2026-01-11T04:00:00Z", false, "2026-01-12T01:00:00+01:00", "2026-01-12T05:00:00+01:00"},
		{"the day that skips an hour has a shorter one", "0 1 * * *", 4 * time.Hour, "Europe/Berlin", "2026-03-29T02:30:00Z", true, "2026-03-29T05:00:00+02:00", "2026-03-30T01:00:00+02:00"},
		{"the day that has an hour twice has a longer one", "0 1 * * *", 4 * time.Hour, "Europe/Berlin", "2026-10-25T03:30:00Z", true, "2026-10-25T05:00:00+01:00", "2026-10-26T01:00:00+01:00"},
		{"the day after opens by the new clock", "0 1 * * *", 4 * time.Hour, "Europe/Berlin", "2026-10-25T04:30:00Z", false, "2026-10-26T01:00:00+01:00", "2026-10-26T05:00:00+01:00"},
		{"an opening in the skipped hour is at the change", "30 2 * * *", 4 * time.Hour, "Europe/Berlin", "2026-03-29T00:59:00Z", false, "2026-03-29T03:00:00+02:00", "2026-03-29T06:30:00+02:00"},
		{"one that lies within the skipped hour has its length", "0 2 * * *", 30 * time.Minute, "Europe/Berlin", "2026-03-29T01:10:00Z", true, "2026-03-29T03:30:00+02:00", "2026-03-30T02:00:00+02:00"},
		{"an opening in the doubled hour is the first", "30 2 * * *", time.Hour, "Europe/Berlin", "2026-10-25T00:29:00Z", false, "2026-10-25T02:30:00+02:00", "2026-10-25T03:30:00+01:00"},
		{"and not once more in the second", "0 2 * * *", 30 * time.Minute, "Europe/Berlin", "2026-10-25T01:10:00Z", false, "2026-10-26T02:00:00+01:00", "2026-10-26T02:30:00+01:00"},
		{"over midnight", "0 22 * * *", 8 * time.Hour, "America/New_York", "2026-06-02T07:00:00Z", true, "2026-06-02T06:00:00-04:00", "2026-06-02T22:00:00-04:00"},
		{"a change at midnight", "0 0 * * *", 2 * time.Hour, "America/Santiago", "2026-09-06T03:59:00Z", false, "2026-09-06T01:00:00-03:00", "2026-09-06T02:00:00-03:00"},
		{"only on weekends", "0 0 * * 6", 48 * time.Hour, "", "2026-11-27T12:00:00Z", false, "2026-11-28T00:00:00Z", "2026-11-30T00:00:00Z"},
		{"openings that touch are one", "0 1,3 * * *", 2 * time.Hour, "UTC", "2026-01-11T02:00:00Z", true, "2026-01-11T05:00:00Z", "2026-01-12T01:00:00Z"},
		{"a leap day", "0 0 29 2 *", time.Hour, "UTC", "2026-01-11T02:00:00Z", false, "2028-02-29T00:00:00Z", "2028-02-29T01:00:00Z"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, err := New(tc.cron, tc.length, tc.zone)
			if err != nil {
				t.Fatal(err)
			}
			s := w.At(moment(t, tc.at))
			if s.Open != tc.open || s.Until.Format(time.RFC3339) != tc.until || s.Then.Format(time.RFC3339) != tc.then {
				t.Errorf("at %s it is open: %v until %s, then %s", tc.at, s.Open, s.Until.Format(time.RFC3339), s.Then.Format(time.RFC3339))
			}
		})
	}
}

// Whoever follows the edges for years comes to each exactly once: the next state begins where the last ended and is another.
func TestTheEdgesOfAWindowFollowEachOther(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kolkata"} {
		for _, expression := range []string{"0 1 * * *", "30 2 * * *", "0 0 * * 0", "45 23 1 * *"} {
			w, err := New(expression, 90*time.Minute, zone)
			if err != nil {
				t.Fatal(err)
			}
			s := w.At(moment(t, "2026-01-01T00:00:00Z"))
			for range 800 {
				next := w.At(s.Until)
				if next.Open == s.Open || !next.Until.After(s.Until) || !next.Until.Equal(s.Then) {
					t.Fatalf("%s %s: after %+v comes %+v", zone, expression, s, next)
				}
				if length := next.Until.Sub(s.Until); next.Open && (length < 30*time.Minute || length > 150*time.Minute) {
					t.Errorf("%s %s: open for %s from %s on", zone, expression, length, s.Until)
				}
				s = next
			}
		}
	}
}

func TestAWindowThatNeverClosesIsOpen(t *testing.T) {
	w, err := New("* * * * *", time.Hour, "UTC")
	if err != nil {
		t.Fatal(err)
	}
	now := moment(t, "2026-01-01T00:00:00Z")
	if s := w.At(now); !s.Open || s.Until.Sub(now) < Longest {
		t.Errorf("it is %+v", s)
	}
}

func TestAWindowIsRefusedWithEveryFault(t *testing.T) {
	for _, tc := range []struct {
		cron   string
		length time.Duration
		zone   string
		says   []string
	}{
		{"1 * * *", time.Hour, "UTC", []string{"five fields"}},
		{"@every 1h", time.Hour, "UTC", []string{"five fields"}},
		{"", time.Hour, "UTC", []string{"five fields"}},
		{"TZ=UTC 0 1 * * *", time.Hour, "UTC", []string{`give it as "zone"`}},
		{"0 1 30 2 *", time.Hour, "UTC", []string{"never opens"}},
		{"0 1 * * *", 0, "UTC", []string{"stays open for 1m"}},
		{"0 1 * * *", 200 * time.Hour, "UTC", []string{"stays open for 1m"}},
		{"0 1 * * *", time.Hour, "Local", []string{"another on each machine"}},
		{"0 25 * * *", 0, "Mars/Olympus", []string{"five fields", "stays open", "there is no zone"}},
	} {
		_, err := New(tc.cron, tc.length, tc.zone)
		for _, says := range tc.says {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%q for %s in %q is answered %v, without %q", tc.cron, tc.length, tc.zone, err, says)
			}
		}
	}
}
