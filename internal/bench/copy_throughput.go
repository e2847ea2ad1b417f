package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

type throughputResult struct {
	Bench      string    `json:"bench"`
	SizeMiB    int64     `json:"size_mib"`
	Pairs      int       `json:"pairs"`
	MiBPerSec  float64   `json:"mib_per_s"`
	CpPerSec   float64   `json:"cp_mib_per_s"`
	Ratio      float64   `json:"ratio"`
	Ratios     []float64 `json:"ratios"`
	PeakMemory float64   `json:"agent_peak_mib_above_idle"`
}

// copyThroughput moves a partition and copies the same files with cp and sync, in turn, each started with the source's
// pages dropped from the page cache. The move's time is the whole workflow's; its bytes are fsynced when it ends.
func copyThroughput(ctx context.Context, b *bench) error {
	pairs := 5
	if b.quick {
		pairs = 2
	}
	for _, size := range []int64{256, 2048} {
		result, err := b.throughputAt(ctx, size, pairs)
		if err != nil {
			return err
		}
		if err := emit(result); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) throughputAt(ctx context.Context, sizeMiB int64, pairs int) (throughputResult, error) {
	result := throughputResult{Bench: "copy_throughput", SizeMiB: sizeMiB, Pairs: pairs}
	topic := fmt.Sprintf("copy-%d", sizeMiB)
	if err := b.fleet.CreateTopic(ctx, topic, 1, "b1"); err != nil {
		return result, err
	}
	if err := fill(ctx, b.fleet, topic, sizeMiB<<20); err != nil {
		return result, err
	}
	var moves, copies []float64
	for i := range pairs {
		row, err := b.fleet.Store.FindAssignment(ctx, topic, 0)
		if err != nil {
			return result, err
		}
		from, to := "b1", "b2"
		if i%2 == 1 {
			from, to = to, from
		}
		dir := b.logDir(row)
		perSec, err := b.timed(dir, sizeMiB, func() error { return cpAndSync(ctx, dir, filepath.Join(b.dir, "cp-target")) })
		if err != nil {
			return result, err
		}
		copies = append(copies, perSec)
		if err := os.RemoveAll(filepath.Join(b.dir, "cp-target")); err != nil {
			return result, err
		}
		idle, err := b.resetPeak()
		if err != nil {
			return result, err
		}
		perSec, err = b.timed(dir, sizeMiB, func() error { _, err := b.fleet.Move(ctx, topic, 0, to); return err })
		if err != nil {
			return result, err
		}
		moves = append(moves, perSec)
		peak, err := b.peak()
		if err != nil {
			return result, err
		}
		result.PeakMemory = max(result.PeakMemory, round(peak-idle))
		result.Ratios = append(result.Ratios, round(moves[i]/copies[i]))
		if err := b.purge(ctx, from); err != nil {
			return result, err
		}
	}
	result.MiBPerSec, result.CpPerSec, result.Ratio = quantile(moves, 0.5), quantile(copies, 0.5), quantile(result.Ratios, 0.5)
	return result, nil
}

// timed measures one copy of a folder with its pages dropped first.
func (b *bench) timed(dir string, sizeMiB int64, copy func() error) (mibPerSec float64, err error) {
	unix.Sync() // what the other side of the pair left is not written back at this side's cost
	if err := dropPages(dir); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := copy(); err != nil {
		return 0, err
	}
	return float64(sizeMiB) / time.Since(began).Seconds(), nil
}

func dropPages(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return err
	}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		err = errors.Join(file.Sync(), unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED), file.Close())
		if err != nil {
			return err
		}
	}
	return nil
}

func cpAndSync(ctx context.Context, dir, target string) error {
	if out, err := exec.CommandContext(ctx, "cp", "-r", dir, target).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	return exec.CommandContext(ctx, "sync").Run()
}

// resetPeak sets both agents' peak memory back and returns what they use idle, in MiB.
func (b *bench) resetPeak() (float64, error) {
	var total float64
	for _, id := range []string{"b1", "b2"} {
		pid := b.fleet.Agent(id).Process.PID()
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0o200); err != nil {
			return 0, err
		}
		kib, err := procStatus(pid, "VmRSS")
		if err != nil {
			return 0, err
		}
		total += kib / 1024
	}
	return total, nil
}

func (b *bench) peak() (float64, error) {
	var total float64
	for _, id := range []string{"b1", "b2"} {
		kib, err := procStatus(b.fleet.Agent(id).Process.PID(), "VmHWM")
		if err != nil {
			return 0, err
		}
		total += kib / 1024
	}
	return total, nil
}

func procStatus(pid int, field string) (kib float64, err error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		if rest, ok := strings.CutPrefix(scanner.Text(), field+":"); ok {
			return strconv.ParseFloat(strings.Fields(rest)[0], 64)
		}
	}
	return 0, fmt.Errorf("process %d has no %s", pid, field)
}
