package services

import (
	"io"
	"os"
	"strings"
)

const (
	logTailBytes = 8 << 10
	logTailLines = 12
)

// logTail returns the end of a log, or "" when there is none.
func logTail(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	if size, err := file.Seek(0, io.SeekEnd); err == nil {
		_, _ = file.Seek(max(0, size-logTailBytes), io.SeekStart)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-logTailLines):], "\n")
}

// endOfLog is logTail made to be appended to an error.
func endOfLog(path string) string {
	tail := logTail(path)
	if tail == "" {
		return ""
	}
	return "; the end of " + path + ":\n" + tail
}

// portWasTaken reports whether a service that ended at once says, at the end of its log, that
// another process was faster at its port.
func portWasTaken(log string) bool {
	return strings.Contains(strings.ToLower(logTail(log)), "address already in use")
}
