package recordbatch

import (
	"fmt"
	"hash/crc32"
	"iter"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum continues the CRC of a batch over p. It starts at zero with the head's bytes from CRCStart on, so that a batch
// can be verified as it streams by.
func Checksum(sum uint32, p []byte) uint32 { return crc32.Update(sum, castagnoli, p) }

// CRCStart is where the bytes begin that a batch's CRC covers.
const CRCStart = crcCovers

// Verify checks one whole batch: its head, that it is exactly as long as it says, and its CRC.
func Verify(batch []byte) error {
	h, err := ParseHeader(batch)
	if err != nil {
		return err
	}
	return verifyBody(h, batch)
}

func verifyBody(h Header, batch []byte) error {
	switch total := h.TotalBytes(); {
	case int64(len(batch)) < total:
		return fmt.Errorf("%w: %d of %d bytes", ErrShort, len(batch), total)
	case int64(len(batch)) > total:
		return fmt.Errorf("%w: %d bytes after the batch's end", ErrCorrupt, int64(len(batch))-total)
	}
	if sum := Checksum(0, batch[crcCovers:]); sum != h.CRC {
		return fmt.Errorf("%w: crc %08x, contents have %08x", ErrCorrupt, h.CRC, sum)
	}
	return nil
}

// Next splits the first batch off buf. At the end of buf it returns ErrShort with nothing consumed, as it does when
// only a part of a batch is left. The CRC is not checked.
func Next(buf []byte) (h Header, batch, rest []byte, err error) {
	if h, err = ParseHeader(buf); err != nil {
		return Header{}, nil, buf, err
	}
	total := h.TotalBytes()
	if int64(len(buf)) < total {
		return Header{}, nil, buf, fmt.Errorf("%w: %d of %d bytes", ErrShort, len(buf), total)
	}
	return h, buf[:total:total], buf[total:], nil
}

// Iterate walks the whole batches at the front of buf and stops before the first that is incomplete or no batch.
func Iterate(buf []byte) iter.Seq2[Header, []byte] {
	return func(yield func(Header, []byte) bool) {
		for len(buf) > 0 {
			h, batch, rest, err := Next(buf)
			if err != nil || !yield(h, batch) {
				return
			}
			buf = rest
		}
	}
}

// ValidateForProduce checks what a client wants appended: at least one batch, whole batches only, v2, CRC right, counts
// that agree, neither control nor transactional. It returns the heads in order.
//
// The records inside are not decoded: a client that lies about their number is believed, as its CRC covers the lie.
func ValidateForProduce(records []byte) ([]Header, error) {
	if len(records) == 0 {
		return nil, fmt.Errorf("%w: no batch at all", ErrShort)
	}
	var heads []Header
	for rest := records; len(rest) > 0; {
		at := len(records) - len(rest)
		h, batch, after, err := Next(rest)
		if err == nil {
			err = produceable(h, batch)
		}
		if err != nil {
			return nil, fmt.Errorf("batch %d at byte %d: %w", len(heads), at, err)
		}
		heads, rest = append(heads, h), after
	}
	return heads, nil
}

func produceable(h Header, batch []byte) error {
	if err := verifyBody(h, batch); err != nil {
		return err
	}
	switch {
	case h.Control():
		return ErrControl
	case h.Transactional():
		return ErrTransactional
	case int64(h.NumRecords) != int64(h.LastOffsetDelta)+1:
		return fmt.Errorf("%w: %d records, last offset delta %d", ErrCorrupt, h.NumRecords, h.LastOffsetDelta)
	case h.Codec() > highestKnownCodec:
		return fmt.Errorf("%w: unknown compression %d", ErrCorrupt, h.Codec())
	case h.ProducerID >= 0 && (h.ProducerEpoch < 0 || h.BaseSequence < 0):
		return fmt.Errorf("%w: producer %d with epoch %d, sequence %d", ErrCorrupt, h.ProducerID, h.ProducerEpoch, h.BaseSequence)
	}
	return nil
}
