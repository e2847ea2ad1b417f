package ledger

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"portage/brokeragent"
	"portage/brokeragent/native"
	"portage/brokeragent/native/seglog"
	"portage/internal/services"
	"portage/internal/services/servicestest"
	"portage/metastore"
)

// startAgent runs one real agent in this process and returns its client address.
func startAgent(t *testing.T) string {
	t.Helper()
	dsn := servicestest.Database(t, servicestest.Postgres(t))
	store, err := metastore.Open(t.Context(), dsn, metastore.Options{SingleNode: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	ports, err := services.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
	config := brokeragent.Config{BrokerID: "b1", NodeID: 1, KafkaListen: address, ControlListen: fmt.Sprintf("127.0.0.1:%d", ports[1]), Data: t.TempDir(),
		Token: "0123456789abcdef0123456789abcdef", MaxTransfers: 1, Log: seglog.Options{SegmentBytes: 1 << 20},
		Limits: native.Limits{ParkFor: time.Second, FreezeLease: 10 * time.Second, MaxFreeze: 30 * time.Second, TrashRetention: time.Hour}}
	agent, err := brokeragent.New(config, store)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("agent: %v", err)
		}
	})
	return address
}

func TestWhatOneAgentAcknowledgedIsFoundWhole(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	bootstrap := []string{startAgent(t)}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(ctx, 3, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	l, err := New(t.TempDir(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := l.StartConsumer(ConsumerOptions{Bootstrap: bootstrap, Partitions: 3, Group: "readers", Every: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	bulk, err := l.StartWriter(WriterOptions{ID: "bulk", Bootstrap: bootstrap, Count: 500, ValueBytes: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	if err := bulk.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	steady, err := l.StartWriter(WriterOptions{ID: "steady", Bootstrap: bootstrap, Rate: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var kcat *KcatWriter
	if _, err := exec.LookPath("kcat"); err == nil {
		if kcat, err = l.StartKcat(KcatOptions{ID: "kcat", Bootstrap: bootstrap, Rate: 200}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(2 * time.Second)
	if err := steady.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if kcat != nil {
		if err := kcat.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if sent, acknowledged, _ := kcat.Counts(); sent < 200 || sent != acknowledged {
			t.Errorf("kcat was given %d records and acknowledged %d", sent, acknowledged)
		}
	}
	if err := consumer.WaitEnd(ctx); err != nil {
		t.Error(err)
	}
	time.Sleep(100 * time.Millisecond) // a commit of the last positions
	if err := consumer.CheckCommitted(ctx); err != nil {
		t.Error(err)
	}
	verdict, err := l.Check(ctx, bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(verdict)
	if !verdict.Whole() || verdict.Acknowledged < 2000 || verdict.LongestWait == 0 {
		t.Errorf("%+v", verdict)
	}
	if n := len(steady.Waits(began, time.Time{})); n < 1500 {
		t.Errorf("%d waits noted", n)
	}
	if read, _ := consumer.Counts(); read != verdict.Acknowledged {
		t.Errorf("the consumer read %d of %d records", read, verdict.Acknowledged)
	}
}
