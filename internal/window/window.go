// Package window says when a recurring window is open: one that opens by a cron expression of the clock on the wall of a
// zone and stays open until that clock shows a certain time more.
//
// Both edges are what the clock on the wall shows: from 01:00 for 4h is until 05:00 on every day, which is 3 hours on the day
// that skips one and 5 on the day that has one twice. An edge in the hour that is skipped is at the moment of the change; one
// in the hour that comes twice is the first of both. A window that would lie wholly within the skipped hour is as long as
// it is asked to be, from the change on.
package window

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Longest is the longest a window may stay open at once.
const Longest = 7 * 24 * time.Hour

// Window is a recurring window.
type Window struct {
	opens  cron.Schedule // on naive times: what the clock on the wall shows, written as if it were UTC
	length time.Duration
	zone   *time.Location
}

var fields = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// New reads a window: five cron fields, how long it stays open, and the name of a zone, "" for UTC. Every fault is named at
// once.
func New(expression string, length time.Duration, zone string) (*Window, error) {
	var faults []string
	w := &Window{length: length}
	var err error
	switch {
	case strings.Contains(expression, "TZ="):
		faults = append(faults, fmt.Sprintf(`the cron expression %q names a zone; give it as "zone"`, expression))
	default:
		if w.opens, err = fields.Parse(expression); err != nil {
			faults = append(faults, fmt.Sprintf(`%q is not a cron expression of five fields, minute, hour, day of the month, month, day of the week, as "0 1 * * *": %v`, expression, err))
		} else if w.opens.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
			faults = append(faults, fmt.Sprintf("the cron expression %q names no day that there is, so the window never opens", expression))
		}
	}
	if length < time.Minute || length > Longest {
		faults = append(faults, fmt.Sprintf("a window stays open for 1m to %s, not for %s", Longest, length))
	}
	if zone == "Local" {
		faults = append(faults, `the zone "Local" is another on each machine; name one, as "Europe/Berlin"`)
	} else if w.zone, err = time.LoadLocation(zone); err != nil {
		faults = append(faults, fmt.Sprintf(`there is no zone %q; name one as "Europe/Berlin" or "UTC"`, zone))
	}
	if len(faults) > 0 {
		return nil, errors.New(strings.Join(faults, "; "))
	}
	return w, nil
}

// State is a window at a moment. The times are in the window's zone.
type State struct {
	Open bool
	// Until is when that changes, after the moment it is the state of.
	Until time.Time
	// Then is when it is as now again: of an open window its next opening, of a closed one the end of its next opening.
	Then time.Time
}

// At is the window's state at a moment.
func (w *Window) At(now time.Time) State {
	// Zones shift by hours at the most: what is not within a day of the naive time is not within the window's length either.
	from := naive(now.In(w.zone)).Add(-w.length - 24*time.Hour)
	var closes time.Time
	for opening := w.opens.Next(from); !opening.IsZero(); opening = w.opens.Next(opening) {
		begin, end := w.span(opening)
		open := !closes.IsZero()
		switch {
		case begin.After(now) && !open:
			return State{Until: begin, Then: end}
		case open && begin.After(closes):
			return State{Open: true, Until: closes, Then: begin}
		case open && closes.Sub(now) > 2*Longest: // it hardly ever closes; asked again then
			return State{Open: true, Until: closes, Then: closes}
		case end.After(now) && end.After(closes):
			closes = end
		}
	}
	return State{Until: now.Add(Longest).In(w.zone), Then: now.Add(Longest).In(w.zone)} // it opens once in many years; asked again then
}

// span is one opening, from and to.
func (w *Window) span(opening time.Time) (begin, end time.Time) {
	begin, end = w.moment(opening), w.moment(opening.Add(w.length))
	if !end.After(begin) {
		end = begin.Add(w.length)
	}
	return begin, end
}

// naive is what the clock on the wall shows, as if it were UTC.
func naive(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// moment is when the clock on the wall first shows a naive time; where it never does, the moment at which it leaps over it.
func (w *Window) moment(wall time.Time) time.Time {
	before, after := w.offset(wall.Add(-24*time.Hour)), w.offset(wall.Add(24*time.Hour))
	for _, offset := range []time.Duration{max(before, after), min(before, after)} { // the greater offset is the earlier moment
		if t := wall.Add(-offset).In(w.zone); naive(t).Equal(wall) {
			return t
		}
	}
	change, _ := wall.Add(-before).In(w.zone).ZoneBounds()
	return change
}

// offset is what the zone's clock is ahead of UTC at about a naive time.
func (w *Window) offset(wall time.Time) time.Duration {
	_, seconds := wall.In(w.zone).Zone()
	return time.Duration(seconds) * time.Second
}
