package brokeragent

import (
	"io"
	"net/http"
	"strconv"

	"golang.org/x/sys/unix"

	"portage/brokeragent/control"
)

// sendChunk is how much is sent between two looks at the throttle.
const sendChunk = 1 << 20

// readAhead is how much of a segment is asked for ahead of what is being sent.
const readAhead = 8 << 20

func (a *Agent) serveListing(w http.ResponseWriter, r *http.Request) error {
	s, err := subjectOf(r)
	if err != nil {
		return err
	}
	list, err := a.native.Listing(r.Context(), s)
	if err != nil {
		return err
	}
	return writeJSON(w, list)
}

func (a *Agent) serveDigest(w http.ResponseWriter, r *http.Request) error {
	s, err := subjectOf(r)
	if err != nil {
		return err
	}
	base, err := intParam(r, "segment", 64)
	if err != nil {
		return err
	}
	size, err := intParam(r, "size", 64)
	if err != nil {
		return err
	}
	digest, err := a.native.SegmentDigest(r.Context(), s, base, size)
	if err != nil {
		return err
	}
	return writeJSON(w, map[string]string{"digest": digest.String()})
}

// serveBytes streams a range of one segment's durable bytes. On a plain connection the kernel sends file to socket
// (sendfile); the throttle of this broker's outgoing copies paces it.
func (a *Agent) serveBytes(w http.ResponseWriter, r *http.Request) error {
	s, err := subjectOf(r)
	if err != nil {
		return err
	}
	var at [3]int64
	for i, name := range []string{"segment", "from", "to"} {
		if at[i], err = intParam(r, name, 64); err != nil {
			return err
		}
	}
	base, from, to := at[0], at[1], at[2]
	file, size, err := a.native.OpenSegment(r.Context(), s, base)
	if err != nil {
		return err
	}
	defer file.Close()
	if from > to || to > size {
		return control.Errorf(control.CodeDigestMismatch, "segment %d has %d durable bytes, not the range %d to %d", base, size, from, to)
	}
	// The tail of a frozen partition neither waits for copies nor is paced: clients are waiting for it.
	drain := a.native.FrozenFor(s)
	if !drain {
		if !a.outgoing.TryAcquire(1) {
			return control.Errorf(control.CodeBusy, "%d copies leave this broker already", a.cfg.MaxTransfers)
		}
		defer a.outgoing.Release(1)
	}
	_ = unix.Fadvise(int(file.Fd()), from, to-from, unix.FADV_SEQUENTIAL)
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return err
	}
	header := w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Length", strconv.FormatInt(to-from, 10))
	header.Set("X-Process-Instance", a.process.String())
	for left := to - from; left > 0; {
		n := min(left, sendChunk)
		// The disk reads on while the socket is written: the kernel's own read-ahead is too short for that.
		_ = unix.Fadvise(int(file.Fd()), to-left+n, readAhead, unix.FADV_WILLNEED)
		if !drain {
			if err := a.limitOut.wait(r.Context(), n); err != nil {
				return nil // the reader is gone; the length it was promised tells it that the stream is short
			}
		}
		sent, err := io.CopyN(w, file, n)
		a.sentBytes.Add(float64(sent))
		if err != nil {
			return nil
		}
		left -= sent
		if drain {
			a.native.DrainProgress(s) // R22: what was sent is the progress that renews the lease
		}
	}
	return nil
}
