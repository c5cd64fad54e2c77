package store

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/lock/internal/pipeline"
)

// What a key holds begins with a head of fixed length: four bytes that name what it is and in which version, and the token
// of the lease that wrote it. A value carries the token as well, so that a Settle whose reply was lost knows its own work.
//
//	claim: head, awaited (1 byte: 1 if somebody wants its end published), fence (16 digits), hold (8 bytes),
//	       claimed (8 bytes), note
//	value: head, settled (8 bytes), value
//
// The hold is in milliseconds, zero without one. The times are those of the writer's wall clock, in milliseconds since
// 1970: they inform, and decide nothing. The fence is text because Lua writes it. The scripts know at which byte each of
// these stands.
//
// A release reads what the one before it wrote, and writes what that one can read. lock/testdata/stored has what the first
// release wrote. A format that needs more gets a version of its own, in the fourth byte, and is read one release before
// it is written.
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

// MaxHold is the longest hold.
const MaxHold = 10 * 365 * 24 * time.Hour

// What an operation on a key has met. Package lock documents them.
var (
	ErrForeign = errors.New("lock: the key holds a foreign value")
	ErrSettled = errors.New("lock: the key holds a value")
	ErrLost    = errors.New("lock: the lease is lost")
)

func appendHead(b []byte, magic string, token uuid.UUID) []byte {
	return append(append(b, magic...), token[:]...)
}

// hasHead reports whether stored begins with the head of magic and token.
func hasHead(stored []byte, magic string, token uuid.UUID) bool {
	return len(stored) >= headLen && string(stored[:len(magic)]) == magic && uuid.UUID(stored[len(magic):headLen]) == token
}

// appendTime appends t as it stands in a claim or a value.
func appendTime(b []byte, t time.Time) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(t.UnixMilli()))
}

func readTime(b []byte) time.Time { return time.UnixMilli(int64(binary.BigEndian.Uint64(b))) }

// NewValue returns the head of a value, with room for size bytes behind it: what Settle stores begins with it.
func NewValue(token uuid.UUID, settled time.Time, size int) []byte {
	return appendTime(appendHead(make([]byte, 0, valuePos+size), valueMagic, token), settled)
}

// appendClaim appends a claim without a number.
func appendClaim(b []byte, token uuid.UUID, awaited bool, claimed time.Time, note []byte) []byte {
	b = appendHead(b, claimMagic, token)
	if awaited {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = append(b, "0000000000000000"...)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	return append(appendTime(b, claimed), note...)
}

// encodeHold returns d as it stands in a claim.
func encodeHold(d time.Duration) *pipeline.Bytes {
	return arg(binary.BigEndian.AppendUint64(nil, uint64(d.Milliseconds())))
}

// arg returns b as an argument of a command.
func arg(b []byte) *pipeline.Bytes { return (*pipeline.Bytes)(&b) }

// NewToken returns a random UUID (RFC 9562 section 5.4).
func NewToken() (token uuid.UUID) {
	_, _ = rand.Read(token[:]) // it never fails
	token[6] = token[6]&0x0f | 0x40
	token[8] = token[8]&0x3f | 0x80
	return token
}

// parse returns what a key holds that is ours.
func parse(stored []byte) (Entry, error) {
	switch {
	case len(stored) >= valuePos && string(stored[:len(valueMagic)]) == valueMagic:
		return Entry{State: Settled, At: readTime(stored[headLen:]), Value: stored[valuePos:]}, nil
	case len(stored) < notePos || string(stored[:len(claimMagic)]) != claimMagic:
		return Entry{}, ErrForeign
	}
	fence, err := parseFence(string(stored[headLen+1 : holdPos]))
	hold := binary.BigEndian.Uint64(stored[holdPos:claimedPos])
	if err != nil || hold > uint64(MaxHold.Milliseconds()) {
		return Entry{}, ErrForeign
	}
	return Entry{
		State: Held, Fence: fence, At: readTime(stored[claimedPos:]), Note: stored[notePos:],
		hold: time.Duration(hold) * time.Millisecond,
	}, nil
}

// parseFence reads the digits that Lua has written.
func parseFence(digits string) (int64, error) {
	fence, err := strconv.ParseUint(digits, 10, 63)
	return int64(fence), err
}
