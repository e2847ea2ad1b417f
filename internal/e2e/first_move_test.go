package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"portage/internal/fleet"
)

func TestMoveWithoutLoad(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	dir := "/tmp/smoke/run"
	os.RemoveAll(dir)
	os.MkdirAll(dir, 0o755)
	f, err := fleet.Start(ctx, fleet.Options{Dir: dir, Binary: "../../bin/portage", Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for n := 1; n <= 2; n++ {
		if _, err := f.AddAgent(ctx, n); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.AddWorker(); err != nil {
		t.Fatal(err)
	}
	if err := f.CreateTopic(ctx, "orders", 3, "b1", "b1", "b2"); err != nil {
		t.Fatal(err)
	}
	c, _ := kgo.NewClient(kgo.SeedBrokers(f.Bootstrap()...), kgo.DefaultProduceTopic("orders"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer c.Close()
	for i := 0; i < 100; i++ {
		if err := c.ProduceSync(ctx, &kgo.Record{Partition: 0, Value: []byte(fmt.Sprint(i))}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	t0 := time.Now()
	r, err := f.Move(ctx, "orders", 0, "b2")
	fmt.Printf("%+v %v %v\n", r, err, time.Since(t0))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 6; i++ {
		to := []string{"b1", "b2"}[i%2]
		t0 = time.Now()
		r, err := f.Move(ctx, "orders", 0, to)
		fmt.Printf("%+v %v %v\n", r, err, time.Since(t0))
		if err := c.ProduceSync(ctx, &kgo.Record{Partition: 0, Value: []byte(fmt.Sprint(i))}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}
