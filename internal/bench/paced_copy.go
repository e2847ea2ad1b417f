package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/time/rate"
)

// pacedCopyCommand makes this program a cp that keeps to a rate, in a process of its own like cp.
const pacedCopyCommand = "paced-copy"

// pacedCopy copies the segments of a log at a rate and syncs them, as a paced cp and sync would.
func pacedCopy(ctx context.Context, dir, target string, mibPerSec float64) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, self, pacedCopyCommand, dir, target, strconv.FormatFloat(mibPerSec, 'f', 3, 64)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("paced copy: %w: %s", err, out)
	}
	return nil
}

func pacedCopyMain(args []string) int {
	mibPerSec, err := strconv.ParseFloat(args[2], 64)
	if err == nil {
		err = copyPaced(args[0], args[1], mibPerSec)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func copyPaced(dir, target string, mibPerSec float64) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return err
	}
	const chunk = 1 << 20
	limiter := rate.NewLimiter(rate.Limit(mibPerSec*chunk), chunk)
	for _, name := range files {
		if err := copyFilePaced(name, filepath.Join(target, filepath.Base(name)), limiter, chunk); err != nil {
			return err
		}
	}
	return nil
}

func copyFilePaced(from, to string, limiter *rate.Limiter, chunk int) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Sync(), out.Close()) }()
	buffer := make([]byte, chunk)
	for {
		n, err := in.Read(buffer)
		if n > 0 {
			if err := limiter.WaitN(context.Background(), n); err != nil {
				return err
			}
			if _, err := out.Write(buffer[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
