package store

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/lock/internal/pipeline"
)

// The bytes that a key holds, a claim or a value. Both begin with a head of 20 bytes: a magic of four bytes, which
// names the kind and the version, and the token of the lease that wrote them. A value has the token so that a Settle
// whose reply was lost recognizes its own value.
//
//	bytes   claim                                               bytes   value
//	0-3     magic                                               0-3     magic
//	4-19    token                                               4-19    token
//	20      mark: 1 if its end is to publish a message, else 0  20-27   settled: time
//	21-36   fence: 16 decimal digits, because Lua writes it     28-     value
//	37-44   hold: milliseconds, 0 without one
//	45-52   claimed: time
//	53-     note
//
// The claim of a lock (TryAcquire, Acquire) has its token once more in place of a note, and after it the owner, a text.
// No note that Claim was given begins with the token, because the token is drawn later. A version that does not know
// locks takes both for a note. Its scripts act on the bytes before the note, and leave it as it is.
//
// Numbers are big-endian. Times are milliseconds since 1970 by the writer's wall clock. They inform operators, and
// decide nothing. The scripts have these positions too, but Lua's string functions count from 1.
//
// Compatibility: each version of this module reads what the version before it wrote, and writes what that one can read.
// lock/testdata/stored holds what the first version wrote. A new format takes a new fourth byte of the magic, and is
// read one version of the module before it is written.
const (
	claimMagic = "OGc\x01"
	valueMagic = "OGv\x01"
	headLen    = len(claimMagic) + len(uuid.UUID{})
	fenceLen   = 16
	holdLen    = 8
	timeLen    = 8
	holdPos    = headLen + 1 + fenceLen
	claimedPos = holdPos + holdLen
	notePos    = claimedPos + timeLen
	valuePos   = headLen + timeLen
)

// MaxOwner is the longest owner of a lock, in bytes.
const MaxOwner = 128

// MaxHold is the longest hold, and the longest lease: ten years.
const MaxHold = 10 * 365 * 24 * time.Hour

// The errors about what a key holds, or no longer holds. Package lock exports and documents them.
var (
	ErrForeign = errors.New("lock: the key holds a foreign value")
	ErrSettled = errors.New("lock: the key holds a value")
	ErrLost    = errors.New("lock: the lease is lost")
)

// appendHead appends the head of a claim or a value.
func appendHead(b []byte, magic string, token uuid.UUID) []byte {
	return append(append(b, magic...), token[:]...)
}

// hasHead reports whether stored begins with the head of magic and token.
func hasHead(stored []byte, magic string, token uuid.UUID) bool {
	return len(stored) >= headLen && string(stored[:len(magic)]) == magic && uuid.UUID(stored[len(magic):headLen]) == token
}

// appendTime appends t as a claim or a value has it.
func appendTime(b []byte, t time.Time) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(t.UnixMilli()))
}

// readTime returns the time that appendTime has appended.
func readTime(b []byte) time.Time { return time.UnixMilli(int64(binary.BigEndian.Uint64(b))) }

// NewValue returns the first 28 bytes of what Settle stores, with capacity for a value of size bytes.
func NewValue(token uuid.UUID, settled time.Time, size int) []byte {
	return appendTime(appendHead(make([]byte, 0, valuePos+size), valueMagic, token), settled)
}

// appendClaim appends a claim without a fence. The end of a marked claim publishes a message.
func appendClaim(b []byte, token uuid.UUID, marked bool, hold time.Duration, claimed time.Time, note []byte) []byte {
	b = appendHead(b, claimMagic, token)
	if marked {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = append(b, "0000000000000000"...)
	b = binary.BigEndian.AppendUint64(b, uint64(hold.Milliseconds()))
	return append(appendTime(b, claimed), note...)
}

// appendOwner appends what a lock's claim has in place of a note.
func appendOwner(b []byte, token uuid.UUID, owner string) []byte {
	return append(append(b, token[:]...), owner...)
}

// arg returns b as the argument of a command, without a copy.
func arg(b []byte) *pipeline.Bytes { return (*pipeline.Bytes)(&b) }

// NewToken returns a random UUID (RFC 9562 section 5.4).
func NewToken() (token uuid.UUID) {
	_, _ = rand.Read(token[:]) // it never fails
	token[6] = token[6]&0x0f | 0x40
	token[8] = token[8]&0x3f | 0x80
	return token
}

// parse parses what a key holds: a claim is Held, a value Settled, and anything else ErrForeign. The Entry's Content
// is a slice of stored.
func parse(stored []byte) (Entry, error) {
	switch {
	case len(stored) >= valuePos && string(stored[:len(valueMagic)]) == valueMagic:
		return Entry{State: Settled, At: readTime(stored[headLen:]), Content: stored[valuePos:]}, nil
	case len(stored) < notePos || string(stored[:len(claimMagic)]) != claimMagic:
		return Entry{}, ErrForeign
	}
	fence, err := parseFence(string(stored[headLen+1 : holdPos]))
	hold := binary.BigEndian.Uint64(stored[holdPos:claimedPos])
	if err != nil || hold > uint64(MaxHold.Milliseconds()) {
		return Entry{}, ErrForeign
	}
	note, isLock := bytes.CutPrefix(stored[notePos:], stored[len(claimMagic):headLen])
	return Entry{
		State: Held, Fence: fence, At: readTime(stored[claimedPos:]), Content: note, IsLock: isLock,
		hold: time.Duration(hold) * time.Millisecond,
	}, nil
}

// ParseValue returns a value that begins with what NewValue returned, as a claim would find it.
func ParseValue(value []byte) Entry {
	e, _ := parse(value)
	return e
}

// parseFence parses the decimal digits of a fence.
func parseFence(digits string) (int64, error) {
	fence, err := strconv.ParseUint(digits, 10, 63)
	return int64(fence), err
}
