package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strconv"
)

// A record's value describes itself, in text without newlines, so that every client can carry it:
//
//	ledger1 WRITER KEY SEQUENCE PADDING CRC
//
// The CRC covers everything before the blank that precedes it.
const magic = "ledger1 "

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// identity names one record of one writer.
type identity struct {
	writer string
	key    int
	seq    int
}

func (id identity) String() string {
	return fmt.Sprintf("%s/%d of %s", keyName(id.writer, id.key), id.seq, id.writer)
}

// keyName is the Kafka key; writers share none, since the order of a key is only defined within one writer.
func keyName(writer string, key int) string { return writer + "-" + strconv.Itoa(key) }

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// encode makes a value of about size bytes; the padding is random, so that compression gains little.
func encode(id identity, size int) (value []byte, crc uint32) {
	value = make([]byte, 0, max(size, 64))
	value = append(append(append(value, magic...), id.writer...), ' ')
	value = append(strconv.AppendInt(value, int64(id.key), 10), ' ')
	value = append(strconv.AppendInt(value, int64(id.seq), 10), ' ')
	const crcBytes = 9
	for missing := max(1, size-len(value)-crcBytes); missing > 0; {
		for bits, n := rand.Uint64(), 0; n < 10 && missing > 0; n, missing = n+1, missing-1 {
			value = append(value, alphabet[bits&63])
			bits >>= 6
		}
	}
	crc = crc32.Checksum(value, castagnoli)
	return fmt.Appendf(value, " %08x", crc), crc
}

var (
	errForeign = errors.New("not a record of a ledger")
	errCorrupt = errors.New("the value does not match its CRC")
)

// decode reads a value back; errForeign means that it does not even claim to be a ledger's.
func decode(key, value []byte) (identity, uint32, error) {
	rest, ours := bytes.CutPrefix(value, []byte(magic))
	if !ours {
		return identity{}, 0, errForeign
	}
	cut := bytes.LastIndexByte(value, ' ')
	crc, err := strconv.ParseUint(string(value[cut+1:]), 16, 32)
	if err != nil || crc32.Checksum(value[:cut], castagnoli) != uint32(crc) {
		return identity{}, 0, errCorrupt
	}
	fields := bytes.SplitN(rest, []byte(" "), 4)
	if len(fields) < 4 {
		return identity{}, 0, errCorrupt
	}
	id := identity{writer: string(fields[0])}
	var errKey, errSeq error
	id.key, errKey = strconv.Atoi(string(fields[1]))
	id.seq, errSeq = strconv.Atoi(string(fields[2]))
	if err := errors.Join(errKey, errSeq); err != nil {
		return identity{}, 0, errCorrupt
	}
	if want := keyName(id.writer, id.key); want != string(key) {
		return id, 0, fmt.Errorf("the value of key %s stands under key %q", want, key)
	}
	return id, uint32(crc), nil
}
