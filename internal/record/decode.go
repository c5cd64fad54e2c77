package record

import (
	"encoding/binary"
	"time"
)

// Decode returns the record in b. An error means that b is damaged, is of another key, door or newer version, that no
// key of c decrypts it, or that it is not encrypted although c requires that.
func (c *Codec) Decode(storageKey string, b []byte) (Record, error) {
	if !isIntact(storageKey, b) || b[FlagsAt]&flagValue != c.doorFlag() {
		return Record{}, errDamaged
	}
	flags := b[FlagsAt]
	content, err := c.decrypt(flags&FlagEncrypted != 0, RecordPurpose, storageKey, []byte{Version, flags}, b[ContentAt:])
	if err != nil {
		return Record{}, err
	}
	r := Record{Tombstone: flags&FlagTombstone != 0}
	if len(content) < fingerprintLen+timeLen {
		return Record{}, errDamaged
	}
	r.Fingerprint = fingerprintOf(content)
	r.Completed = time.UnixMilli(int64(binary.BigEndian.Uint64(content[fingerprintLen:])))
	extension, payload, ok := cutExtension(content[fingerprintLen+timeLen:])
	if ok && flags&FlagCompressed != 0 {
		payload, ok = inflate(payload)
	}
	if !ok {
		return Record{}, errDamaged
	}
	r.readExtension(extension)
	r.Body = payload
	return r, nil
}

// DecodeAny is Decode for a record of any door. It returns the door.
func (c *Codec) DecodeAny(storageKey string, b []byte) (Record, Door, error) {
	of := *c
	of.Door = HTTP
	if len(b) > FlagsAt && b[FlagsAt]&flagValue != 0 {
		of.Door = Value
	}
	r, err := of.Decode(storageKey, b)
	return r, of.Door, err
}

// isIntact reports whether b is an undamaged record of this key, in a form that this release knows.
func isIntact(storageKey string, b []byte) bool {
	return len(b) >= ContentAt && b[0] == Version && b[FlagsAt]&^flagsKnown == 0 &&
		binary.BigEndian.Uint32(b[ChecksumAt:]) == Checksum(storageKey, b)
}

// fingerprintOf returns the fingerprint that b begins with. b has at least fingerprintLen bytes.
func fingerprintOf(b []byte) Fingerprint {
	n := len(Kind{})
	return Fingerprint{Kind: Kind(b[:n]), Sum: [32]byte(b[n:fingerprintLen])}
}

// CutUvarint returns the uvarint that b begins with, and the rest after it. ok is false unless the uvarint has its
// shortest form and is limit at most.
func CutUvarint(b []byte, limit int) (v int, rest []byte, ok bool) {
	u, n := binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 || u > uint64(limit) {
		return 0, nil, false
	}
	return int(u), b[n:], true
}

// cutExtension returns the extension that b begins with, without its length, and the rest after it.
func cutExtension(b []byte) (extension, rest []byte, ok bool) {
	n, rest, ok := CutUvarint(b, len(b))
	if !ok || n > len(rest) {
		return nil, nil, false
	}
	return rest[:n], rest[n:], true
}
