package services

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// A serviceUser is who Postgres runs as: it refuses to run as root.
type serviceUser struct {
	name string
	// credential is nil when Postgres runs as the user that started us.
	credential *syscall.Credential
}

func postgresUser() (serviceUser, error) {
	if os.Geteuid() != 0 {
		return serviceUser{name: "the current user"}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(found.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(found.Gid, 10, 32)
		if errUID != nil || errGID != nil || uid == 0 {
			continue
		}
		return serviceUser{name, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return serviceUser{}, errors.New("root may not run Postgres, and this machine has neither a user postgres nor a user nobody: start as another user, or create one (useradd --system postgres)")
}

// own makes the folder, which must exist, private to the user.
func (u serviceUser) own(folder string) error {
	if u.credential != nil {
		if err := os.Chown(folder, int(u.credential.Uid), int(u.credential.Gid)); err != nil {
			return fmt.Errorf("give %s to the user %s: %w", folder, u.name, err)
		}
	}
	return os.Chmod(folder, 0o700)
}

// checkReach returns an error that names the outermost folder on the way to folder that the user
// cannot enter.
func (u serviceUser) checkReach(folder string) error {
	if u.credential == nil || u.canEnter(folder) {
		return nil
	}
	closed := folder
	for parent := folder; parent != filepath.Dir(parent); {
		parent = filepath.Dir(parent)
		if !u.canEnter(parent) {
			closed = parent
		}
	}
	return fmt.Errorf("the user %s, who runs Postgres when root starts it, cannot enter %s: choose a data folder elsewhere (under /var/lib or /tmp), or open it with chmod o+x %s", u.name, closed, closed)
}

// canEnter asks the kernel, who alone knows all of modes, groups, access lists and mounts.
func (u serviceUser) canEnter(folder string) bool {
	cmd := exec.Command("/bin/sh", "-c", `cd -- "$1"`, "sh", folder)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: u.credential}
	return cmd.Run() == nil
}

// temporaryFolder makes a new folder that the user can enter.
func (u serviceUser) temporaryFolder(pattern string) (string, error) {
	var refused error
	for _, parent := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		folder, err := os.MkdirTemp(parent, pattern)
		if err != nil {
			refused = err
			continue
		}
		if err := os.Chmod(folder, 0o711); err != nil {
			refused = err
		} else if err := u.checkReach(folder); err != nil {
			refused = err
		} else {
			return folder, nil
		}
		_ = os.Remove(folder)
	}
	return "", fmt.Errorf("no temporary folder for Postgres: %w", refused)
}
