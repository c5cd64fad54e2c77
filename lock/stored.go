package lock

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// What a key holds starts with a head of fixed length: four bytes that say what it is and in which version, and the
// token of the lease that wrote it. A value carries the token as well, so that a Settle whose reply was lost knows its
// own work.
//
//	claim: head, awaited (1 byte: 1 if somebody wants its end published), fence (16 digits), hold (8 bytes), note
//	value: head, value
//
// The hold is in milliseconds, zero without one. The fence is text because Lua writes it. The scripts know at which
// byte each of these stands.
const (
	claimMagic = "OGc\x01"
	valueMagic = "OGv\x01"
	headLen    = len(claimMagic) + len(uuid.UUID{})
	fenceLen   = 16
	holdLen    = 8
	notePos    = headLen + 1 + fenceLen + holdLen
)

func appendHead(b []byte, magic string, token uuid.UUID) []byte {
	return append(append(b, magic...), token[:]...)
}

// encodeHold returns d as it stands in a claim.
func encodeHold(d time.Duration) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(d.Milliseconds())))
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
func appendClaim(b []byte, token uuid.UUID, awaited bool, note []byte) []byte {
	b = appendHead(b, claimMagic, token)
	if awaited {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = append(b, "0000000000000000"...)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	return append(b, note...)
}

func (c *claimText) head() []byte { return c.text[:headLen] }

func (c *claimText) toFence() []byte { return c.text[:headLen+1] }

func (c *claimText) behindFence() []byte { return c.text[headLen+1+fenceLen:] }

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
type text []byte

// MarshalBinary is for go-redis.
func (t *text) MarshalBinary() ([]byte, error) { return *t, nil }

// String is for its hooks, which may want a text in UTF-8.
func (t *text) String() string { return hex.EncodeToString(*t) }

// content is what a key holds that is ours.
type content struct {
	state State // Held or Settled
	fence int64
	hold  time.Duration
	rest  []byte // the note, or the value
}

func parse(stored []byte) (content, error) {
	switch {
	case len(stored) >= headLen && string(stored[:len(valueMagic)]) == valueMagic:
		return content{state: Settled, rest: stored[headLen:]}, nil
	case len(stored) < notePos || string(stored[:len(claimMagic)]) != claimMagic:
		return content{}, ErrForeign
	}
	fence, err := parseFence(string(stored[headLen+1 : headLen+1+fenceLen]))
	hold := binary.BigEndian.Uint64(stored[notePos-holdLen : notePos])
	if err != nil || hold > uint64(MaxHold.Milliseconds()) {
		return content{}, ErrForeign
	}
	return content{Held, fence, time.Duration(hold) * time.Millisecond, stored[notePos:]}, nil
}

// parseFence reads the digits that Lua has written.
func parseFence(digits string) (int64, error) {
	fence, err := strconv.ParseUint(digits, 10, 63)
	return int64(fence), err
}
