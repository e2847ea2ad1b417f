package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// apiVersionsKey is special in two places: the answer to a version too new, and its answer's header, which never has tags.
const apiVersionsKey = 18

// frame is one request as it came: everything behind the size.
type frame struct {
	bytes   []byte
	arrived time.Time
}

// header is the part of a request that is the same in every version.
type header struct {
	key, version  int16
	correlationID int32
}

const headerBytes = 8

var errTruncated = errors.New("request ends inside its header")

func (f frame) header() (header, error) {
	if len(f.bytes) < headerBytes {
		return header{}, errTruncated
	}
	return header{
		key:           int16(binary.BigEndian.Uint16(f.bytes)),
		version:       int16(binary.BigEndian.Uint16(f.bytes[2:])),
		correlationID: int32(binary.BigEndian.Uint32(f.bytes[4:])),
	}, nil
}

// decode reads the rest of the header and the body; the version has been checked against what kmsg knows.
func (f frame) decode(h header) (kmsg.Request, error) {
	req := kmsg.RequestForKey(h.key)
	if req == nil || h.version < 0 || h.version > req.MaxVersion() {
		return nil, fmt.Errorf("no such request: key %d version %d", h.key, h.version)
	}
	req.SetVersion(h.version)
	rest, err := cutNullableString(f.bytes[headerBytes:]) // the client's name for itself
	if err != nil {
		return nil, err
	}
	if req.IsFlexible() {
		if rest, err = cutTags(rest); err != nil {
			return nil, err
		}
	}
	if err := checkArrays(h, rest); err != nil {
		return nil, err
	}
	if err := req.ReadFrom(rest); err != nil {
		return nil, fmt.Errorf("decode request: %w", err)
	}
	return req, nil
}

// encode is the whole answer, size included.
func encode(h header, resp kmsg.Response, sizeHint int) []byte {
	out := make([]byte, 8, 256+sizeHint)
	binary.BigEndian.PutUint32(out[4:], uint32(h.correlationID))
	if resp.IsFlexible() && h.key != apiVersionsKey {
		out = append(out, 0)
	}
	out = resp.AppendTo(out)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}

// cutNullableString skips a string.
func cutNullableString(b []byte) ([]byte, error) {
	if len(b) < 2 {
		return nil, errTruncated
	}
	n := int(int16(binary.BigEndian.Uint16(b)))
	b = b[2:]
	if n < 0 {
		return b, nil
	}
	if len(b) < n {
		return nil, errTruncated
	}
	return b[n:], nil
}

// cutTags skips the tagged fields of a request header; none is defined.
func cutTags(b []byte) ([]byte, error) {
	count, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, errTruncated
	}
	b = b[n:]
	for ; count > 0; count-- {
		_, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errTruncated
		}
		b = b[n:]
		size, n := binary.Uvarint(b)
		if n <= 0 || uint64(len(b)-n) < size {
			return nil, errTruncated
		}
		b = b[n+int(size):]
	}
	return b, nil
}

// checkArrays refuses a Produce request that claims more topics than any client sends. The decoder reserves a topic's
// memory for every two bytes that are left, which the record bytes of a large request would let a liar multiply; every
// other request is small (Options.MaxOtherBytes).
func checkArrays(h header, body []byte) error {
	const maxProduceTopics = 100_000
	if h.key != produceKey {
		return nil
	}
	flexible := h.version >= 9
	var err error
	if h.version >= 3 { // the transactional id
		if flexible {
			n, w := binary.Uvarint(body)
			if w <= 0 || n > uint64(len(body)-w)+1 {
				return errTruncated
			}
			body = body[w+int(max(n, 1))-1:]
		} else if body, err = cutNullableString(body); err != nil {
			return err
		}
	}
	if len(body) < 6 { // acks, timeout
		return errTruncated
	}
	body = body[6:]
	var topics int64
	if flexible {
		n, w := binary.Uvarint(body)
		if w <= 0 || n > 1<<31 {
			return errTruncated
		}
		topics = int64(n) - 1
	} else {
		if len(body) < 4 {
			return errTruncated
		}
		topics = int64(int32(binary.BigEndian.Uint32(body)))
	}
	if topics > maxProduceTopics {
		return fmt.Errorf("produce request of %d topics; %d is the most", topics, maxProduceTopics)
	}
	return nil
}
