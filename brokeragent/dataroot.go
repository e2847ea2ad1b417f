package brokeragent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"portage/internal/durable"
)

// storageFile carries the storage instance: rows name it, so that another disk under the same broker id is never taken
// for the owner's (R5).
const storageFile = "storage.json"

type storageIdentity struct {
	Storage  uuid.UUID `json:"storage"`
	Fleet    uuid.UUID `json:"fleet"`
	BrokerID string    `json:"brokerId"`
}

// dataRoot is the locked data folder of one agent.
type dataRoot struct {
	path     string
	lock     *os.File
	identity storageIdentity // the fleet in it changes once, under mu

	mu sync.Mutex // guards: identity.Fleet
}

// openDataRoot creates or opens the folder and locks it against a second agent. A new folder gets a new storage instance.
func openDataRoot(path, broker string) (*dataRoot, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("the data folder can not be made: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("the data folder can not be written: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("another agent uses the data folder %s; stop it, or name another folder", path)
	}
	root := &dataRoot{path: path, lock: lock}
	file := filepath.Join(path, storageFile)
	switch err := durable.ReadJSON(file, &root.identity); {
	case errors.Is(err, os.ErrNotExist):
		root.identity = storageIdentity{Storage: uuid.New(), BrokerID: broker}
		if err := durable.WriteJSON(file, root.identity); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	case root.identity.BrokerID != broker:
		lock.Close()
		return nil, fmt.Errorf("the data folder %s belongs to broker %q; name the right folder or --id", path, root.identity.BrokerID)
	}
	return root, nil
}

// bindFleet remembers the fleet the folder belongs to.
func (r *dataRoot) bindFleet(fleet uuid.UUID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.identity.Fleet == fleet {
		return nil
	}
	r.identity.Fleet = fleet
	return durable.WriteJSON(filepath.Join(r.path, storageFile), r.identity)
}

// fleet is the fleet the folder belongs to; uuid.Nil before its first registration.
func (r *dataRoot) fleet() uuid.UUID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.identity.Fleet
}

// disk is the size of the file system and what an unprivileged process may still use of it.
func (r *dataRoot) disk() (totalBytes, freeBytes int64, err error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(r.path, &stat); err != nil {
		return 0, 0, err
	}
	return int64(stat.Blocks) * stat.Bsize, int64(stat.Bavail) * stat.Bsize, nil
}

func (r *dataRoot) close() { r.lock.Close() }
