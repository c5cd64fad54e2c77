package pipeline

import (
	"errors"
	"fmt"
	"strconv"
)

// Reply is the reply to a command: null, a text, a number, or the pair that claim.lua returns.
type Reply struct {
	Absent bool   // null: the key did not exist when Redis executed the command
	Text   []byte // what the key holds, the head that a script has read from it, or the digits of a number
	Pair   bool   // this is a reply of claim.lua, which sets Fence or Left
	Fence  string // the fence of a claim that was granted, in decimal digits
	Left   int64  // the key's time to live in milliseconds; negative if it never expires

	WaitErr error // ErrNotReplicated if too few replicas have what the command wrote; nil without a WAIT
}

// ErrProtocol is the error of a reply that is not of the kind that the command returns.
var ErrProtocol = errors.New("lock: unexpected reply")

// errNoReply is the error of a command that has neither a reply nor an error.
var errNoReply = fmt.Errorf("%w: none", ErrProtocol)

// newReply returns a reply that go-redis has parsed.
func newReply(v any) (Reply, error) {
	switch v := v.(type) {
	case string:
		return Reply{Text: []byte(v)}, nil
	case int64:
		return Reply{Text: strconv.AppendInt(nil, v, 10)}, nil
	case []any:
		if len(v) == 2 {
			return newPair(v[0], v[1])
		}
	}
	return Reply{}, fmt.Errorf("%w: a %T", ErrProtocol, v)
}

// newPair returns the reply of claim.lua.
func newPair(content, fenceOrLeft any) (Reply, error) {
	text, isText := content.(string)
	fence, isFence := fenceOrLeft.(string)
	left, isLeft := fenceOrLeft.(int64)
	if !isText && content != nil || !isFence && !isLeft {
		return Reply{}, fmt.Errorf("%w: a pair of %T and %T", ErrProtocol, content, fenceOrLeft)
	}
	return Reply{Pair: true, Absent: !isText, Text: []byte(text), Fence: fence, Left: left}, nil
}
