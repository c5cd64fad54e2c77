package lock

// What the tests of the parser need.

type Reply struct {
	Absent bool
	Text   []byte
	Pair   bool
	Fence  string
	Left   int64
}

var ErrProtocol = errProtocol

func ParseReply(raw []byte) (Reply, error) {
	r, err := parseReply(raw)
	return Reply{Absent: r.absent, Text: r.text, Pair: r.pair, Fence: r.fence, Left: r.left}, err
}
