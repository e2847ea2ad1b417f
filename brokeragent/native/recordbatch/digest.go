package recordbatch

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Digest is the state of the hash chain over batch heads; the zero value is the digest of nothing.
type Digest [sha256.Size]byte

// Next is the digest after one more batch: SHA-256(d || the batch's first 61 bytes). A longer slice is cut, a shorter one
// is a mistake of the caller.
func (d Digest) Next(head []byte) Digest {
	var in [sha256.Size + HeaderBytes]byte
	copy(in[:], d[:])
	copy(in[sha256.Size:], head[:HeaderBytes])
	return sha256.Sum256(in[:])
}

func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText writes the digest in hex.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(d)) {
		return fmt.Errorf("digest has %d characters, not %d", len(text), hex.EncodedLen(len(d)))
	}
	_, err := hex.Decode(d[:], text)
	return err
}
