package seglog

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"

	"portage/internal/durable"
)

// Options tune a log. The zero value is ready for production.
type Options struct {
	SegmentBytes       int64 // a segment is rolled before it grows beyond this; 0: 128 MiB
	IndexIntervalBytes int64 // 0: 64 KiB
	// ProducerExpiry is how long the state of a producer outlives the deletion of its last batch; 0: 24 hours.
	ProducerExpiry time.Duration
	Logger         *slog.Logger
	Now            func() time.Time
	// Synced hears how long each flush of records to the disk took; nil: nobody does.
	Synced func(time.Duration)

	syncFile func(*os.File) error // a test's failing disk
}

func (o Options) withDefaults() Options {
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = 128 << 20
	}
	if o.IndexIntervalBytes <= 0 {
		o.IndexIntervalBytes = 64 << 10
	}
	if o.ProducerExpiry <= 0 {
		o.ProducerExpiry = 24 * time.Hour
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.syncFile == nil {
		o.syncFile = durable.Datasync
	}
	if heard := o.Synced; heard != nil {
		flush := o.syncFile
		o.Synced, o.syncFile = nil, func(f *os.File) error {
			began := time.Now()
			err := flush(f)
			heard(time.Since(began))
			return err
		}
	}
	return o
}

// Identity says whose log a directory holds. A topic deleted and made again has another id.
type Identity struct {
	TopicID   uuid.UUID `json:"topic_id"`
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
}

func (id Identity) String() string { return fmt.Sprintf("%s/%d", id.Topic, id.Partition) }

var (
	// ErrClosed is returned by calls after Close.
	ErrClosed = errors.New("log is closed")
	// ErrNotEmpty refuses to create a log, or install one, over something that exists.
	ErrNotEmpty = errors.New("directory exists and is not empty")
	// ErrNotALog says that a directory holds no log. Nothing is created in its place (R5).
	ErrNotALog = errors.New("directory holds no log")
	// ErrIdentity says that a directory belongs to another partition or topic id.
	ErrIdentity = errors.New("directory belongs to another partition")
	// ErrBoundary says that a size does not end at a batch boundary.
	ErrBoundary = errors.New("size is not at a batch boundary")
	// ErrNoSegment says that no segment has this base offset.
	ErrNoSegment = errors.New("no segment with this base offset")
	// ErrStaleEpoch refuses an epoch below the newest one, or a second start of the same epoch.
	ErrStaleEpoch = errors.New("epoch is not newer than the log's")
)

// OutOfRangeError answers an offset the log does not have.
type OutOfRangeError struct {
	Offset, Start, End int64
}

func (e *OutOfRangeError) Error() string {
	return fmt.Sprintf("offset %d is outside %d to %d", e.Offset, e.Start, e.End)
}

// CorruptError says where durable bytes are damaged or missing. Nothing has been changed on disk.
type CorruptError struct {
	File     string
	Position int64
	Err      error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d: %v", e.File, e.Position, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }
