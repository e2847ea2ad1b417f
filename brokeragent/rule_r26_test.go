//go:build portage_faults

package brokeragent_test

import (
	"fmt"
	"slices"
	"testing"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/native"
	"portage/internal/faults/faultstest"
)

// Two clients get producer ids from one broker that lost its disk in between. With the same id, the first batch of the
// second client looks like one that is known, and is confirmed without being written.
func TestR26AProducerIDIsNotGivenOutAgainAfterADiskLoss(t *testing.T) {
	faultstest.Story(t, "R26", func(t *testing.T) string {
		f, b1, b2, orders := agenttest.Pair(t)
		produce := func(producer int64, value string) {
			t.Helper()
			if code, _ := b1.Produce(orders, 0, agenttest.Sequenced(producer, 0, value)); code != 0 {
				t.Fatalf("%q was answered with code %d", value, code)
			}
		}
		produce(b2.NewProducerID(), "of the first client")
		replaceDisk(t, f, b2)
		produce(b2.NewProducerID(), "of the second client")
		if values := b1.Values(orders, 0); !slices.Equal(values, []string{"of the first client", "of the second client"}) {
			return fmt.Sprintf("two records were confirmed, the partition holds %q", values)
		}
		return ""
	})
}

// Ids are not dealt out by broker either: any number of brokers gives out different ones, spread over 62 bits.
func TestR26ProducerIDsAreRandomAndDiffer(t *testing.T) {
	faultstest.Story(t, "R26", func(t *testing.T) string {
		f := agenttest.New(t)
		b1, b2 := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{})
		f.CreateTopic("orders", 1, b1)
		seen, bits := map[int64]string{}, int64(0)
		for range 40 {
			for _, a := range []*agenttest.Agent{b1, b2} {
				id := a.NewProducerID()
				if other, known := seen[id]; known {
					return fmt.Sprintf("%s gives out %d, as %s did", a.ID, id, other)
				}
				if id < 0 || id>>62 != 0 {
					t.Errorf("%d is not within 62 bits", id)
				}
				seen[id], bits = a.ID, bits|id
			}
		}
		if bits != 1<<62-1 {
			t.Errorf("80 ids together set only the bits %b", bits)
		}
		return ""
	})
}
