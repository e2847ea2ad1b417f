package services

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// oldestPostgres is the oldest major version that Portage is tested with.
const oldestPostgres = 15

const installPostgres = "install it (Debian and Ubuntu: apt-get install postgresql; Homebrew: brew install postgresql), or name a running server in " + DSNVariable

// A postgresInstallation is one folder with the programs of one version.
type postgresInstallation struct {
	bin   string
	major int
}

// FindPostgres returns the folder with the programs of the newest Postgres server on this machine.
func FindPostgres() (bindir string, err error) {
	newest, err := choosePostgres(findInstallations(postgresFolders()), 0)
	return newest.bin, err
}

// choosePostgres picks the newest installation, or the one that made an existing data folder
// (dataMajor; 0: there is none yet).
func choosePostgres(newestFirst []postgresInstallation, dataMajor int) (postgresInstallation, error) {
	if len(newestFirst) == 0 {
		return postgresInstallation{}, fmt.Errorf("there is no Postgres server on this machine: %s", installPostgres)
	}
	if dataMajor != 0 {
		for _, found := range newestFirst {
			if found.major == dataMajor {
				return found, nil
			}
		}
		return postgresInstallation{}, fmt.Errorf("the data folder was made by Postgres %d, which is not on this machine (Postgres %d is): install version %d, or choose another folder",
			dataMajor, newestFirst[0].major, dataMajor)
	}
	if newest := newestFirst[0]; newest.major < oldestPostgres {
		return postgresInstallation{}, fmt.Errorf("the newest Postgres server on this machine is version %d in %s, and Portage needs %d or newer: %s", newest.major, newest.bin, oldestPostgres, installPostgres)
	}
	return newestFirst[0], nil
}

// postgresFolders lists where a server may be installed. Debian's packages put only the client
// programs on the PATH.
func postgresFolders() []string {
	folders := filepath.SplitList(os.Getenv("PATH"))
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
	} {
		found, _ := filepath.Glob(pattern)
		folders = append(folders, found...)
	}
	return folders
}

// findInstallations returns those folders that hold a whole server, newest first.
func findInstallations(folders []string) []postgresInstallation {
	var found []postgresInstallation
	for _, folder := range folders {
		// The PATH may have empty and relative entries; a server is started with another
		// working directory.
		if !filepath.IsAbs(folder) {
			continue
		}
		if _, err := exec.LookPath(filepath.Join(folder, "initdb")); err != nil {
			continue
		}
		output, err := exec.Command(filepath.Join(folder, "postgres"), "--version").Output()
		if err != nil {
			continue
		}
		if major := majorVersion(string(output)); major != 0 {
			found = append(found, postgresInstallation{folder, major})
		}
	}
	slices.SortStableFunc(found, func(a, b postgresInstallation) int { return cmp.Compare(b.major, a.major) })
	return found
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// majorVersion reads the output of postgres --version; 0 when it is not one.
func majorVersion(output string) int {
	match := versionPattern.FindStringSubmatch(output)
	if match == nil {
		return 0
	}
	major, _ := strconv.Atoi(match[1])
	return major
}

// dataVersion returns the major version that made the data folder, 0 when it does not exist.
func dataVersion(data string) (int, error) {
	text, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the Postgres data folder: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read the version of the Postgres data folder %s: %w", data, err)
	}
	return major, nil
}
