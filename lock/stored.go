package lock

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// What a key holds starts with a head of fixed length: four bytes that say what it is and in which version, and the
// token of the lease that wrote it. A value carries the token as well, so that a Settle whose reply was lost knows its
// own work.
//
//	claim: head, awaited (1 byte: 1 if somebody wants its end published), fence (16 digits), hold (8 bytes),
//	       claimed (8 bytes), note
//	value: head, settled (8 bytes), value
//
// The hold is in milliseconds, zero without one. The times are those of the writer's wall clock, in milliseconds since
// 1970: they inform, and decide nothing. The fence is text because Lua writes it. The scripts know at which byte each of
// these stands.
//
// A release reads what the one before it wrote, and writes what that one can read. testdata/stored has what the first
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

func appendHead(b []byte, magic string, token uuid.UUID) []byte {
	return append(append(b, magic...), token[:]...)
}

// appendTime appends t as it stands in a claim or a value.
func appendTime(b []byte, t time.Time) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(t.UnixMilli()))
}

func readTime(b []byte) time.Time { return time.UnixMilli(int64(binary.BigEndian.Uint64(b))) }

// appendValueHead appends what a value begins with.
func appendValueHead(b []byte, token uuid.UUID, settled time.Time) []byte {
	return appendTime(appendHead(b, valueMagic, token), settled)
}

// encodeHold returns d as it stands in a claim.
func encodeHold(d time.Duration) *text {
	return part(binary.BigEndian.AppendUint64(nil, uint64(d.Milliseconds())))
}

// hasHead tells whether stored begins with the head of magic and token.
func hasHead(stored []byte, magic string, token uuid.UUID) bool {
	return len(stored) >= headLen && string(stored[:len(magic)]) == magic && uuid.UUID(stored[len(magic):headLen]) == token
}

// claimText is a claim that is to be written, without a number.
type claimText struct {
	token uuid.UUID
	text  text
}

// appendClaim appends the text of a claim to b, which may have the room for it.
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

// The parts of a claim that commands take as arguments.

func (c *claimText) head() *text { return part(c.text[:headLen]) }

func (c *claimText) toFence() *text { return part(c.text[:headLen+1]) }

func (c *claimText) behindFence() *text { return part(c.text[holdPos:]) }

func part(b []byte) *text { return (*text)(&b) }

// isOurs tells whether stored is this claim, whatever it was made to say since.
func (c *claimText) isOurs(stored []byte) bool { return hasHead(stored, claimMagic, c.token) }

// newToken returns a random UUID (RFC 9562 section 5.4).
func newToken() (token uuid.UUID) {
	_, _ = rand.Read(token[:]) // it never fails
	token[6] = token[6]&0x0f | 0x40
	token[8] = token[8]&0x3f | 0x80
	return token
}

// text is an argument of a command. Its pointer fits into an interface, and go-redis writes what it points to: that
// takes neither a copy nor an allocation.
//
// It prints as its length. Hooks of go-redis print arguments into traces and logs, and ours hold responses.
type text []byte

// MarshalBinary is for go-redis.
func (t *text) MarshalBinary() ([]byte, error) { return *t, nil }

// Format implements [fmt.Formatter], for every verb.
func (t *text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }

// String returns the length in words.
func (t *text) String() string { return strconv.Itoa(len(*t)) + " bytes" }

// MarshalText is for encoding/json and log/slog.
func (t *text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// content is what a key holds that is ours.
type content struct {
	state State // Held or Settled
	fence int64
	hold  time.Duration
	at    time.Time // when it was claimed, or settled, by its writer's clock
	rest  []byte    // the note, or the value
}

func parse(stored []byte) (content, error) {
	switch {
	case len(stored) >= valuePos && string(stored[:len(valueMagic)]) == valueMagic:
		return content{state: Settled, at: readTime(stored[headLen:]), rest: stored[valuePos:]}, nil
	case len(stored) < notePos || string(stored[:len(claimMagic)]) != claimMagic:
		return content{}, ErrForeign
	}
	fence, err := parseFence(string(stored[headLen+1 : holdPos]))
	hold := binary.BigEndian.Uint64(stored[holdPos:claimedPos])
	if err != nil || hold > uint64(MaxHold.Milliseconds()) {
		return content{}, ErrForeign
	}
	return content{
		state: Held, fence: fence, hold: time.Duration(hold) * time.Millisecond, at: readTime(stored[claimedPos:]),
		rest: stored[notePos:],
	}, nil
}

// parseFence reads the digits that Lua has written.
func parseFence(digits string) (int64, error) {
	fence, err := strconv.ParseUint(digits, 10, 63)
	return int64(fence), err
}
