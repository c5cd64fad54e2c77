package middleware

import "io"

// grow returns b with room for n bytes more. It doubles the room, so that many small steps cost little, but stops at
// the limit on the way: append would make a full buffer up to twice as large as what is in it.
func grow(b []byte, n, limit int) []byte {
	const least = 512
	need := len(b) + n
	if need <= cap(b) {
		return b
	}
	room := max(2*cap(b), least)
	if need <= limit {
		room = min(room, limit)
	}
	larger := make([]byte, len(b), max(need, room))
	copy(larger, b)
	return larger
}

// readAll is [io.ReadAll] for what is expected to have limit bytes at most.
func readAll(r io.Reader, limit int) ([]byte, error) {
	var b []byte
	for {
		b = grow(b, 1, limit+1) // one more, to see the end
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, err
		}
	}
}
