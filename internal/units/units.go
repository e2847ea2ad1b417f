// Package units reads and writes sizes and durations as people do, in JSON, flags and settings.
package units

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ByteSize is a number of bytes that reads "256KiB", "64MiB", "1GiB", "10MB" or a plain number.
type ByteSize int64

var sizeUnits = []struct {
	suffix string
	bytes  float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}}

// ParseByteSize reads a size; negative sizes are errors.
func ParseByteSize(text string) (ByteSize, error) {
	number, unit := strings.TrimSpace(text), 1.0
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !(n >= 0) || n*unit > 1<<62 { // not a number is not at least 0 either
		return 0, fmt.Errorf(`%q is not a size; write "64MiB" or a number of bytes`, text)
	}
	return ByteSize(n * unit), nil
}

// ParseRate reads bytes a second: a size, or a network's "1Gbit", "100Mbit", "64kbit" (8 bits a byte, decimal).
func ParseRate(text string) (ByteSize, error) {
	trimmed := strings.TrimSuffix(strings.TrimSpace(text), "/s")
	for _, u := range []struct {
		suffix string
		bytes  float64
	}{{"Tbit", 1e12 / 8}, {"Gbit", 1e9 / 8}, {"Mbit", 1e6 / 8}, {"kbit", 1e3 / 8}} {
		rest, ok := strings.CutSuffix(trimmed, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
		if err != nil || !(n >= 0) || n*u.bytes > 1<<62 {
			return 0, fmt.Errorf(`%q is not a rate; write "1Gbit" or "100MiB"`, text)
		}
		return ByteSize(n * u.bytes), nil
	}
	size, err := ParseByteSize(trimmed)
	if err != nil {
		return 0, fmt.Errorf(`%q is not a rate; write "1Gbit" or "100MiB"`, text)
	}
	return size, nil
}

// String writes a size with one decimal and a binary unit.
func (b ByteSize) String() string { return string(b.Append(nil)) }

// Append writes it behind a text.
func (b ByteSize) Append(text []byte) []byte {
	unit, name := int64(1), " B"
	switch {
	case b >= 1<<30:
		unit, name = 1<<30, " GiB"
	case b >= 1<<20:
		unit, name = 1<<20, " MiB"
	case b >= 1<<10:
		unit, name = 1<<10, " KiB"
	default:
		return append(strconv.AppendInt(text, int64(b), 10), name...)
	}
	return append(strconv.AppendFloat(text, float64(b)/float64(unit), 'f', 1, 64), name...)
}

// UnmarshalJSON takes a text or a plain number.
func (b *ByteSize) UnmarshalJSON(raw []byte) error {
	text := string(raw)
	if quoted, err := strconv.Unquote(text); err == nil {
		text = quoted
	}
	size, err := ParseByteSize(text)
	*b = size
	return err
}

// UnmarshalText serves command line flags.
func (b *ByteSize) UnmarshalText(text []byte) error {
	size, err := ParseByteSize(string(text))
	*b = size
	return err
}

// Duration is a time span that reads "2m", never negative.
type Duration time.Duration

// UnmarshalJSON takes a text with a unit.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return fmt.Errorf(`%s is not a duration; write "2m"`, raw)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil || parsed < 0 {
		return fmt.Errorf(`%q is not a duration; write "2m"`, text)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalJSON writes the text.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }
