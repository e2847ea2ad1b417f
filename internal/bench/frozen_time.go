package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"portage/brokeragent/control"
	"portage/metastore"
)

type frozenResult struct {
	Bench            string  `json:"bench"`
	SizeMiB          int64   `json:"size_mib"`
	Moves            int     `json:"moves"`
	AgentP50         float64 `json:"agent_p50_ms"`
	ClientP50        float64 `json:"client_p50_ms"`
	Max              float64 `json:"max_ms"`
	CopyingWaitP99   float64 `json:"copying_wait_p99_ms"`
	CpWaitP99        float64 `json:"cp_wait_p99_ms"`
	Converged        bool    `json:"converged"`
	ClientErrors     int     `json:"client_errors"`
	CopyMiBPerSecond float64 `json:"copy_mib_per_s"`
}

// frozenTime moves one partition back and forth under 2,000 records a second and reports how long writes were held: as
// the source agent saw it, from the first parked request until the partition took writes again, and as the client saw it,
// the longest call that overlaps the freeze. Each move goes to a broker without a retained copy.
func frozenTime(ctx context.Context, b *bench) error {
	moves := 20
	if b.quick {
		moves = 4
	}
	for _, size := range []int64{16, 256, 1024} {
		result, err := b.frozenAt(ctx, size, moves)
		if err != nil {
			return err
		}
		if err := emit(result); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) frozenAt(ctx context.Context, sizeMiB int64, moves int) (frozenResult, error) {
	result := frozenResult{Bench: "frozen_time", SizeMiB: sizeMiB, Moves: moves, Converged: true}
	topic := fmt.Sprintf("frozen-%d", sizeMiB)
	if err := b.fleet.CreateTopic(ctx, topic, 1, "b1"); err != nil {
		return result, err
	}
	if err := fill(ctx, b.fleet, topic, sizeMiB<<20); err != nil {
		return result, err
	}
	writer, err := startLoad(ctx, b.fleet, topic)
	if err != nil {
		return result, err
	}
	var agent, client, copying, rates []float64
	for i := range moves {
		from, to := "b1", "b2"
		if i%2 == 1 {
			from, to = to, from
		}
		began := time.Now()
		moved, err := b.fleet.Move(ctx, topic, 0, to)
		if err != nil {
			return result, err
		}
		freeze, err := b.lastFreeze(ctx, topic, from)
		if err != nil {
			return result, err
		}
		frozenUntil := freeze.At.Add(freeze.Total)
		agent = append(agent, milliseconds(freeze.Frozen))
		overlapping := writer.waits(freeze.At, frozenUntil)
		client = append(client, quantile(overlapping, 1))
		copying = append(copying, writer.waits(began, freeze.At)...)
		rates = append(rates, float64(moved.Bytes)/(1<<20)/freeze.At.Sub(began).Seconds())
		result.Converged = result.Converged && moved.Converged
		if err := b.purge(ctx, from); err != nil {
			return result, err
		}
	}
	result.AgentP50, result.ClientP50 = quantile(agent, 0.5), quantile(client, 0.5)
	result.Max = max(quantile(agent, 1), quantile(client, 1))
	result.CopyingWaitP99 = quantile(copying, 0.99)
	result.CopyMiBPerSecond = quantile(rates, 0.5)
	if result.CpWaitP99, err = b.cpWait(ctx, writer, topic, moves, result.CopyMiBPerSecond); err != nil {
		return result, err
	}
	result.ClientErrors, err = writer.close(ctx)
	return result, err
}

// lastFreeze is the source's own report of the freeze of the last move.
func (b *bench) lastFreeze(ctx context.Context, topic, source string) (control.FreezeReport, error) {
	row, err := b.fleet.Store.FindAssignment(ctx, topic, 0)
	if err != nil {
		return control.FreezeReport{}, err
	}
	status, err := b.fleet.Agents.Partition(ctx, b.fleet.Agent(source).ControlURL, row.TopicID, 0)
	if err != nil || status.LastFreeze == nil {
		return control.FreezeReport{}, fmt.Errorf("%s reports no freeze: %w", source, err)
	}
	return *status.LastFreeze, nil
}

// purge deletes the former copy a move left, so that the next move back has to copy everything.
func (b *bench) purge(ctx context.Context, broker string) error {
	for {
		purged, err := b.fleet.Agents.PurgeTrash(ctx, b.fleet.Agent(broker).ControlURL)
		if err != nil {
			return err
		}
		status, err := b.fleet.Agents.Status(ctx, b.fleet.Agent(broker).ControlURL)
		if err != nil {
			return err
		}
		if purged.Deleted > 0 && status.TrashBytes == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the former copy on %s was not purged (%v): %w", broker, purged.Kept, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// cpWait is the 99th percentile of the same load's waits while a plain copy of the same files runs at the same rate.
func (b *bench) cpWait(ctx context.Context, writer *load, topic string, times int, mibPerSec float64) (float64, error) {
	row, err := b.fleet.Store.FindAssignment(ctx, topic, 0)
	if err != nil {
		return 0, err
	}
	target := filepath.Join(b.dir, "cp-target")
	var waits []float64
	for range times {
		began := time.Now()
		if err := pacedCopy(ctx, b.logDir(row), target, mibPerSec); err != nil {
			return 0, err
		}
		waits = append(waits, writer.waits(began, time.Now())...)
		if err := os.RemoveAll(target); err != nil {
			return 0, err
		}
	}
	return quantile(waits, 0.99), nil
}

// logDir is the folder of a partition at its owner.
func (b *bench) logDir(row *metastore.Assignment) string {
	return filepath.Join(b.fleet.Agent(row.Owner).Data, "partitions", row.TopicID.String(), strconv.Itoa(int(row.Partition)))
}
