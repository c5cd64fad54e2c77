package lock

import "github.com/google/uuid"

// What a key holds starts with a head of fixed length: four bytes that say what it is and in which version, and the
// token of the lease that wrote it. A claim's note, or a settled value, follows. A value carries the token as well, so
// that a Settle whose reply was lost knows its own work.
const (
	claimMagic = "OGc\x01"
	valueMagic = "OGv\x01"
	headLen    = len(claimMagic) + len(uuid.UUID{})
)

func head(magic string, token uuid.UUID) string { return magic + string(token[:]) }

// parse splits what a key holds.
func parse(stored string) (State, []byte, error) {
	if len(stored) < headLen {
		return 0, nil, ErrForeign
	}
	rest := []byte(stored[headLen:])
	switch stored[:len(claimMagic)] {
	case claimMagic:
		return Held, rest, nil
	case valueMagic:
		return Settled, rest, nil
	}
	return 0, nil, ErrForeign
}
