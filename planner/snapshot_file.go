package planner

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// FileFormat is the number of the form in which snapshots are written. A program reads the forms up to its own.
const FileFormat = 1

// fileHead is a snapshot file without its partitions.
type fileHead struct {
	Format     int        `json:"format"`
	FleetID    string     `json:"fleetId,omitempty"`
	TakenAt    time.Time  `json:"takenAt"`
	Recoveries int        `json:"recoveries,omitempty"`
	Brokers    []Broker   `json:"brokers"`
	Topics     []Topic    `json:"topics"`
	Cooldowns  []Cooldown `json:"cooldowns,omitempty"`
}

// WriteTo writes the snapshot as JSON, one partition a line.
func (s *Snapshot) WriteTo(to io.Writer) (int64, error) {
	counted := &countingWriter{to: to}
	w := bufio.NewWriterSize(counted, 1<<16)
	head, err := json.MarshalIndent(fileHead{FileFormat, s.FleetID, s.TakenAt, s.Recoveries, orEmpty(s.Brokers), orEmpty(s.Topics), s.Cooldowns}, "", "  ")
	if err != nil {
		return 0, err
	}
	w.Write(head[:len(head)-2]) // the object stays open for the partitions
	w.WriteString(",\n  \"partitions\": [")
	for i := range s.Len() {
		line, err := json.Marshal(s.Partition(i))
		if err != nil {
			return counted.n, err
		}
		if i > 0 {
			w.WriteByte(',')
		}
		w.WriteString("\n    ")
		w.Write(line)
	}
	w.WriteString("\n  ]\n}\n")
	return counted.n, w.Flush() // a bufio.Writer keeps its first error
}

// ReadSnapshot reads what WriteTo wrote, or a person has changed. Brokers and topics stand before the partitions. Unknown
// keys are errors. Memory: about 120 bytes a partition while it reads.
func ReadSnapshot(from io.Reader) (*Snapshot, error) {
	decoder := json.NewDecoder(bufio.NewReaderSize(from, 1<<16))
	decoder.DisallowUnknownFields()
	b := NewBuilder(0)
	format := 0
	if err := delim(decoder, '{'); err != nil {
		return nil, fmt.Errorf("the snapshot is no JSON object: %w", err)
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, fmt.Errorf("the snapshot can not be read: %w", err)
		}
		switch key {
		case "format":
			err = decoder.Decode(&format)
			if err == nil && (format < 1 || format > FileFormat) {
				return nil, fmt.Errorf("the snapshot has format %d, this program reads 1 to %d", format, FileFormat)
			}
		case "fleetId":
			err = decoder.Decode(&b.FleetID)
		case "takenAt":
			err = decoder.Decode(&b.TakenAt)
		case "recoveries":
			err = decoder.Decode(&b.Recoveries)
		case "brokers":
			err = each(decoder, b.AddBroker)
		case "topics":
			err = each(decoder, b.AddTopic)
		case "cooldowns":
			err = each(decoder, func(c Cooldown) error { b.AddCooldown(c); return nil })
		case "partitions":
			err = each(decoder, b.Add)
		default:
			err = fmt.Errorf("unknown key")
		}
		if err != nil {
			return nil, fmt.Errorf("the snapshot's %q: %w", key, err)
		}
	}
	if err := delim(decoder, '}'); err != nil {
		return nil, fmt.Errorf("the snapshot does not end: %w", err)
	}
	if format == 0 {
		return nil, fmt.Errorf(`the snapshot names no "format"; this program writes %d`, FileFormat)
	}
	return b.Build()
}

// each decodes an array element by element.
func each[T any](decoder *json.Decoder, take func(T) error) error {
	if err := delim(decoder, '['); err != nil {
		return err
	}
	for decoder.More() {
		var v T
		if err := decoder.Decode(&v); err != nil {
			return err
		}
		if err := take(v); err != nil {
			return err
		}
	}
	return delim(decoder, ']')
}

func delim(decoder *json.Decoder, want json.Delim) error {
	token, err := decoder.Token()
	if err == nil && token != want {
		err = fmt.Errorf("%v stands where %v should", token, want)
	}
	return err
}

func orEmpty[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}

type countingWriter struct {
	to io.Writer
	n  int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err
}
