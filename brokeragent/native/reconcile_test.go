package native

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/google/uuid"

	"portage/brokeragent/control"
	"portage/metastore"
)

// testRows stands for the metastore: it knows no row, and opens as a test says.
type testRows struct {
	Rows
	open func(metastore.OpenRequest) (*metastore.Assignment, error)
}

func (r *testRows) ReadAssignment(context.Context, uuid.UUID, int32) (*metastore.Assignment, error) {
	return nil, nil
}

func (r *testRows) DeletedTopics(context.Context, []uuid.UUID) ([]metastore.DeletedTopic, error) {
	return nil, nil
}

func (r *testRows) OpenOwner(_ context.Context, o metastore.OpenRequest) (*metastore.Assignment, error) {
	return r.open(o)
}

// unreconciled is a partition of b1 with an empty log, at a broker that has read the metastore. The test itself takes its
// reconciler's steps.
func unreconciled(t *testing.T, rows *testRows) *Partition {
	t.Helper()
	b, err := NewBroker(Config{BrokerID: "b1", Root: t.TempDir(), Rows: rows, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	k := key{topicID: uuid.New()}
	p := newPartition(b, k, "orders")
	b.partitions[k], b.topics[k.topicID], b.confirmed = p, metastore.Topic{ID: k.topicID, Name: "orders", Partitions: 1}, true
	if err := p.create(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // without the locks, which a failure may have left taken
		if err := errors.Join(p.log.Close(), p.offsets.Close(), b.held.close()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// The disk fails while the metastore is asked to open a frozen partition again: what it answers comes too late, and the
// partition stays closed.
func TestAPartitionWhoseDiskFailsWhileItThawsStaysClosed(t *testing.T) {
	rows := &testRows{}
	p := unreconciled(t, rows)
	row := metastore.Assignment{TopicID: p.topicID, Topic: p.topic, Owner: "b1", Epoch: 1, Version: 5, State: metastore.StateOpened}
	p.broker.rows[p.key] = &row
	p.mu.Lock()
	p.setState(StateOpening, "")
	p.openAt(&row)
	p.mu.Unlock()
	if _, _, err := p.beginFreeze("m1", &row); err != nil {
		t.Fatal(err)
	}
	rows.open = func(metastore.OpenRequest) (*metastore.Assignment, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failStorage(errors.New("input/output error"))
		opened := row
		opened.Version++
		return &opened, nil
	}
	p.reconcile(t.Context()) // the row carries no move any more
	if s := p.Status(); s.State != string(StateClosed) || s.ReasonCode != control.CodeStorage {
		t.Errorf("it is %s (%s)", s.State, s.Reason)
	}
	if n := p.broker.frozen.Load(); n != 0 {
		t.Errorf("%d freezes are counted", n)
	}
}

// What an owner holds for its predecessor is answered when the partition is closed: nothing may be left that looks at its log.
func TestAPartitionThatClosesAnswersWhatItHolds(t *testing.T) {
	p := unreconciled(t, &testRows{})
	row := metastore.Assignment{TopicID: p.topicID, Topic: p.topic, Owner: "b1", Epoch: 1, Version: 5, State: metastore.StateOpened}
	w := &produce{partition: p, decided: make(chan struct{})}
	p.mu.Lock()
	p.setState(StateOpening, "")
	p.openAt(&row)
	p.holdAhead(w)
	p.mu.Unlock()
	elsewhere := row
	elsewhere.Epoch++ // it left and came back
	p.stayOpen(&elsewhere)
	select {
	case <-w.decided:
	default:
		t.Error("a batch is held though nothing will be appended any more")
	}
	if s := p.Status(); s.State != string(StateClosed) || s.ReasonCode != CodeOtherEpoch || s.Parked != 0 {
		t.Errorf("it is %+v", s)
	}
}

// A suspension may be lifted at any moment, also between its beginning and the step that acts on it.
func TestAPartitionStaysBackThoughItsSuspensionIsLiftedAtOnce(t *testing.T) {
	p := unreconciled(t, &testRows{})
	ctx, cancel := context.WithCancel(t.Context())
	var lifting sync.WaitGroup
	lifting.Go(func() {
		for ctx.Err() == nil {
			p.broker.mu.Lock()
			p.broker.lift(p.key)
			p.broker.mu.Unlock()
		}
	})
	for range 2000 {
		p.reconcile(ctx)
	}
	cancel()
	lifting.Wait()
	if s := p.Status(); s.State != string(StateClosed) || s.ReasonCode != metastore.CodeMetastoreOlder {
		t.Errorf("it is %s (%s)", s.State, s.Reason)
	}
}
