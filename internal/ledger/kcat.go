package ledger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
)

// KcatOptions describe a steady load written by kcat (librdkafka).
type KcatOptions struct {
	ID         string
	Bootstrap  []string
	Rate       int // records a second; 100 by default
	Keys       int // 16 by default
	ValueBytes int // 128 by default
	Binary     string
}

// KcatWriter feeds a kcat process. kcat names no offsets: its records are acknowledged all at once, when it ends cleanly.
type KcatWriter struct {
	journal *journal
	process *exec.Cmd
	stdin   io.WriteCloser
	stop    context.CancelFunc
	feeding sync.WaitGroup
	ended   chan error
	once    sync.Once
	err     error
}

// StartKcat starts kcat; the error says when there is none.
func (l *Ledger) StartKcat(o KcatOptions) (*KcatWriter, error) {
	if o.Binary == "" {
		o.Binary = "kcat"
	}
	if o.Rate == 0 {
		o.Rate = 100
	}
	if o.Keys == 0 {
		o.Keys = 16
	}
	if o.ValueBytes == 0 {
		o.ValueBytes = 128
	}
	path, err := exec.LookPath(o.Binary)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w; install kcat", err)
	}
	// -E: a broker that is away is no reason to end.
	process := exec.Command(path, "-P", "-E", "-b", strings.Join(o.Bootstrap, ","), "-t", l.topic, "-K", ":", "-X", "enable.idempotence=true", "-X", "linger.ms=5")
	process.SysProcAttr = childAttributes()
	stdin, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := process.StderrPipe()
	if err != nil {
		return nil, err
	}
	j, err := l.open(o.ID, o.Keys)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &KcatWriter{journal: j, process: process, stdin: stdin, stop: stop, ended: make(chan error, 1)}
	if err := w.start(stderr); err != nil {
		stop()
		return nil, errors.Join(err, j.close())
	}
	l.mu.Lock()
	l.kcats = append(l.kcats, w)
	l.mu.Unlock()
	w.feeding.Go(func() {
		key := 0
		pace(ctx, o.Rate, 0, func() bool {
			id, value := j.next(key, o.ValueBytes)
			key = (key + 1) % o.Keys
			_, err := fmt.Fprintf(stdin, "%s:%s\n", keyName(id.writer, id.key), value)
			return err == nil
		})
		if ctx.Err() == nil {
			j.complain("kcat ended before its time")
		}
	})
	return w, nil
}

// start runs kcat from a thread that lives as long as it does, for the kernel ends the child with the thread that
// started it, and reads what it says until it ends.
func (w *KcatWriter) start(stderr io.Reader) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := w.process.Start()
		if started <- err; err != nil {
			return
		}
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			if kcatFault(lines.Text()) {
				w.journal.complain("kcat: " + lines.Text())
			}
		}
		w.ended <- w.process.Wait()
	}()
	return <-started
}

// noise is what librdkafka says while a broker is away and it reconnects: news of connections, not of records.
var noise = regexp.MustCompile(`\|FAIL\||Broker transport failure|Connection refused|[Cc]onnection.*(reset|closed)|Disconnected|[Aa]ll broker connections are down|\d+/\d+ brokers are down|Local: Timed out|timed out.*after \d+ms.*request`)

// kcatFault reports whether a line of kcat's stderr is an error about records.
func kcatFault(line string) bool {
	line = strings.TrimSpace(line)
	if line == "" {
		return false
	}
	if strings.Contains(line, "elivery failed") || strings.Contains(line, "ailed to produce") || strings.Contains(line, "FATAL") {
		return true
	}
	if noise.MatchString(line) {
		return false
	}
	// librdkafka logs as %LEVEL|time|...: 4 and above (warnings, notices) are not errors.
	return !(len(line) > 2 && line[0] == '%' && line[1] >= '4' && line[1] <= '7' && line[2] == '|')
}

// Counts says how many records were handed to kcat, how many are acknowledged and how many errors it reported.
func (w *KcatWriter) Counts() (sent, acknowledged, failed int64) { return w.journal.counts() }

// Close ends the input and waits until kcat has flushed; when the context ends first, kcat is killed and none of its
// records is required.
func (w *KcatWriter) Close(ctx context.Context) error {
	w.once.Do(func() {
		w.stop()
		go func() {
			w.feeding.Wait()
			_ = w.stdin.Close() // at the end of its input kcat flushes and ends
		}()
		select {
		case err := <-w.ended:
			w.feeding.Wait()
			if err != nil {
				w.journal.complain(fmt.Sprintf("kcat ended with %v", err))
			} else {
				w.journal.acknowledgeAll()
			}
		case <-ctx.Done():
			_ = w.process.Process.Kill()
			<-w.ended
			w.feeding.Wait()
			w.journal.complain("kcat did not flush in time and was killed")
		}
		w.err = w.journal.close()
	})
	return w.err
}
