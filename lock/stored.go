package lock

import (
	"encoding/binary"
	"strconv"
	"strings"
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

func head(magic string, token uuid.UUID) string { return magic + string(token[:]) }

// encodeHold returns d as it stands in a claim.
func encodeHold(d time.Duration) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(d.Milliseconds())))
}

// claimText is a claim that is to be written.
type claimText struct {
	token       uuid.UUID
	head        string
	toFence     string
	behindFence string
}

func newClaimText(token uuid.UUID, awaited bool, note []byte) claimText {
	h := head(claimMagic, token)
	c := claimText{token: token, head: h, toFence: h + "\x00", behindFence: encodeHold(0) + string(note)}
	if awaited {
		c.toFence = h + "\x01"
	}
	return c
}

// unnumbered is the whole claim, with no fence.
func (c claimText) unnumbered() string {
	return c.toFence + strings.Repeat("0", fenceLen) + c.behindFence
}

// isOurs tells whether stored is this claim, whatever it was made to say since.
func (c claimText) isOurs(stored string) bool { return strings.HasPrefix(stored, c.head) }

// content is what a key holds that is ours.
type content struct {
	state State // Held or Settled
	fence int64
	hold  time.Duration
	rest  []byte // the note, or the value
}

func parse(stored string) (content, error) {
	switch {
	case len(stored) >= headLen && stored[:len(valueMagic)] == valueMagic:
		return content{state: Settled, rest: []byte(stored[headLen:])}, nil
	case len(stored) < notePos || stored[:len(claimMagic)] != claimMagic:
		return content{}, ErrForeign
	}
	fence, err := parseFence(stored[headLen+1 : headLen+1+fenceLen])
	hold := binary.BigEndian.Uint64([]byte(stored[notePos-holdLen : notePos]))
	if err != nil || hold > uint64(MaxHold.Milliseconds()) {
		return content{}, ErrForeign
	}
	return content{Held, fence, time.Duration(hold) * time.Millisecond, []byte(stored[notePos:])}, nil
}

// parseFence reads the digits that Lua has written.
func parseFence(digits string) (int64, error) {
	fence, err := strconv.ParseUint(digits, 10, 63)
	return int64(fence), err
}
