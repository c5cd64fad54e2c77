package lock

import (
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// What a key holds starts with a head of fixed length: four bytes that say what it is and in which version, and the
// token of the lease that wrote it. In a claim the hold follows, in milliseconds, eight bytes, zero without one, and
// then the note. In a settled value the value follows. A value carries the token as well, so that a Settle whose reply
// was lost knows its own work.
const (
	claimMagic = "OGc\x01"
	valueMagic = "OGv\x01"
	headLen    = len(claimMagic) + len(uuid.UUID{})
	holdLen    = 8
)

func head(magic string, token uuid.UUID) string { return magic + string(token[:]) }

// encodeHold returns d as it stands in a claim.
func encodeHold(d time.Duration) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(d.Milliseconds())))
}

// content is what a key holds that is ours.
type content struct {
	state State // Held or Settled
	head  string
	hold  time.Duration
	rest  []byte // the note, or the value
}

func parse(stored string) (content, error) {
	if len(stored) < headLen {
		return content{}, ErrForeign
	}
	head, rest := stored[:headLen], stored[headLen:]
	switch {
	case head[:len(claimMagic)] == claimMagic && len(rest) >= holdLen:
		ms := binary.BigEndian.Uint64([]byte(rest[:holdLen]))
		if ms > uint64(MaxHold.Milliseconds()) {
			return content{}, ErrForeign
		}
		return content{Held, head, time.Duration(ms) * time.Millisecond, []byte(rest[holdLen:])}, nil
	case head[:len(valueMagic)] == valueMagic:
		return content{Settled, head, 0, []byte(rest)}, nil
	}
	return content{}, ErrForeign
}
