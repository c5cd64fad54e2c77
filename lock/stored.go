package lock

import (
	"encoding/binary"
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

func head(magic string, token uuid.UUID) string { return magic + string(token[:]) }

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
	text  string
}

func newClaimText(token uuid.UUID, awaited bool, note []byte) claimText {
	b := make([]byte, 0, notePos+len(note))
	b = append(b, claimMagic...)
	b = append(b, token[:]...)
	if awaited {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = append(b, "0000000000000000"...)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	return claimText{token: token, text: string(append(b, note...))}
}

func (c claimText) toFence() string { return c.text[:headLen+1] }

func (c claimText) behindFence() string { return c.text[headLen+1+fenceLen:] }

// isOurs tells whether stored is this claim, whatever it was made to say since.
func (c claimText) isOurs(stored []byte) bool { return hasHead(stored, claimMagic, c.token) }

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
