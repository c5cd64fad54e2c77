package dbtest

import "io"

// Requests returns the whole requests that in begins with, as they are passed on.
func Requests(in io.Reader) (passed []byte) {
	r := newRequests(in)
	for {
		q, err := r.next()
		if err != nil {
			return passed
		}
		passed = append(passed, q.raw...)
	}
}
