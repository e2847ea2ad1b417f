package wire

import (
	"log/slog"
	"time"
)

// Options are the limits of a Server. The zero value of a field means its default.
type Options struct {
	Logger *slog.Logger // discards when nil

	MaxRequestBytes int // largest Produce request; 100 MiB
	MaxOtherBytes   int // largest request of any other kind, which carry no records; 8 MiB
	MaxFetchBytes   int // most record bytes of one Fetch answer, whatever the client asks for; 64 MiB

	// MaxQueuedRequests and MaxQueuedBytes bound what is read ahead of the request in hand, per connection: 64 requests,
	// 16 MiB. One request larger than MaxQueuedBytes is still taken when nothing else is queued.
	MaxQueuedRequests int
	MaxQueuedBytes    int

	IdleTimeout  time.Duration // a connection without a request in hand for this long is closed; 10 min
	WriteTimeout time.Duration // a client that takes none of its answer for this long is cut off; 1 min

	Metrics Metrics // none when nil
}

// Metrics is told what the server does. Its methods are called from many goroutines and must not block.
type Metrics interface {
	// ConnectionOpened and ConnectionClosed count client connections.
	ConnectionOpened()
	ConnectionClosed()
	// RequestHandled reports one request: the bytes of the request and of its answer (0 when it has none), how long it
	// waited for those before it, and how long it took itself, parks and long polls included.
	RequestHandled(key, version int16, requestBytes, responseBytes int, queued, took time.Duration)
}

type noMetrics struct{}

func (noMetrics) ConnectionOpened()                                       {}
func (noMetrics) ConnectionClosed()                                       {}
func (noMetrics) RequestHandled(_, _ int16, _, _ int, _, _ time.Duration) {}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	orDefault(&o.MaxRequestBytes, 100<<20)
	orDefault(&o.MaxOtherBytes, 8<<20)
	orDefault(&o.MaxFetchBytes, 64<<20)
	orDefault(&o.MaxQueuedRequests, 64)
	orDefault(&o.MaxQueuedBytes, 16<<20)
	orDefault(&o.IdleTimeout, 10*time.Minute)
	orDefault(&o.WriteTimeout, time.Minute)
	return o
}

func orDefault[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}
