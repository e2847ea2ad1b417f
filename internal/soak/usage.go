package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"portage/internal/services"
)

// usage is what one process holds.
type usage struct {
	process    string
	memory     int64 // resident bytes
	goroutines int64
	handles    int64 // open files and sockets
	disk       int64 // agents only: bytes beside the logs of the partitions it owns; -1 elsewhere
}

// What may be added over a soak without anything being wrong: a heap that has grown once, connections that clients keep
// open, the segments that a growing log begins.
const (
	moreMemory     = 64 << 20
	moreGoroutines = 60
	moreHandles    = 60
	moreDisk       = 4 << 20
)

// measure asks every agent and worker.
func (s *soak) measure(ctx context.Context) (all []usage, err error) {
	for _, id := range s.fleet.AgentIDs() {
		a := s.fleet.Agent(id)
		u, err := ofProcess(a.Process)
		if err != nil {
			return nil, err
		}
		if u.goroutines, err = goroutines(ctx, a.ControlURL, s.fleet.Token); err != nil {
			return nil, err
		}
		if u.disk, err = s.beside(ctx, id); err != nil {
			return nil, err
		}
		all = append(all, u)
	}
	for n := range s.fleet.Workers() {
		u, err := ofProcess(s.fleet.Worker(n))
		if err != nil {
			return nil, err
		}
		if u.goroutines, err = goroutines(ctx, s.workerURLs[n], s.fleet.Token); err != nil {
			return nil, err
		}
		all = append(all, u)
	}
	return all, nil
}

func ofProcess(p *services.Process) (usage, error) {
	u := usage{process: p.Name(), disk: -1}
	folder := filepath.Join("/proc", strconv.Itoa(p.PID()))
	status, err := os.ReadFile(filepath.Join(folder, "status"))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "VmRSS:"); found {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				return u, err
			}
			u.memory = kib << 10
		}
	}
	handles, err := os.ReadDir(filepath.Join(folder, "fd"))
	u.handles = int64(len(handles))
	return u, err
}

// goroutines reads go_goroutines from a process's metrics.
func goroutines(ctx context.Context, url, token string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), "go_goroutines "); found {
			n, err := strconv.ParseFloat(value, 64)
			return int64(n), err
		}
	}
	return 0, fmt.Errorf("%s/metrics names no go_goroutines", url)
}

// beside is what a broker keeps besides the logs of the partitions it owns, which grow with what is written.
func (s *soak) beside(ctx context.Context, id string) (bytes int64, err error) {
	snapshot, err := s.fleet.Store.ReadSnapshot(ctx)
	if err != nil {
		return 0, err
	}
	root := s.fleet.Agent(id).Data
	owned := map[string]bool{}
	for _, a := range snapshot.Assignments {
		if a.Owner == id {
			owned[filepath.Join(root, "partitions", a.TopicID.String(), strconv.Itoa(int(a.Partition)))] = true
		}
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // removed meanwhile
		case err != nil:
			return err
		case d.IsDir() && owned[path]:
			return fs.SkipDir
		case d.Type().IsRegular():
			if info, err := d.Info(); err == nil {
				bytes += info.Size()
			}
		}
		return nil
	})
	return bytes, err
}

// worse says what a process holds more of than it may.
func (u usage) worse(before usage) error {
	var all []error
	for _, c := range []struct {
		what                 string
		now, then, mayBeMore int64
	}{
		{"bytes of memory", u.memory, before.memory, max(moreMemory, before.memory/2)},
		{"goroutines", u.goroutines, before.goroutines, moreGoroutines},
		{"file handles", u.handles, before.handles, moreHandles},
		{"bytes of disk beside its logs", u.disk, before.disk, moreDisk},
	} {
		if c.now > c.then+c.mayBeMore {
			all = append(all, fmt.Errorf("%s holds %d %s and began with %d", u.process, c.now, c.what, c.then))
		}
	}
	return errors.Join(all...)
}

// beside is one line with both measurements.
func (u usage) beside(before usage) string {
	line := fmt.Sprintf("%-8s  memory %d → %d MiB, file handles %d → %d, goroutines %d → %d", u.process, before.memory>>20, u.memory>>20, before.handles, u.handles,
		before.goroutines, u.goroutines)
	if u.disk >= 0 {
		line += fmt.Sprintf(", disk beside its logs %d → %d KiB", before.disk>>10, u.disk>>10)
	}
	return line
}
