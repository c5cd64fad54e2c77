package middleware_test

import (
	"crypto/sha256"
	"strconv"
	"testing"
)

// The time that the middleware takes, without the network. Its own time is "first" less "bare" and "locker first", or
// "replay" less "locker replay" (the handler does not run), to be compared with the one SHA-256 of the body that no
// fingerprint can do without.
func BenchmarkOverhead(b *testing.B) {
	for _, size := range []int{1 << 10, 4 << 10, 64 << 10} {
		name := strconv.Itoa(size>>10) + " KiB"
		b.Run("bare/"+name, func(b *testing.B) {
			c := newCounter(b, size)
			b.ReportAllocs()
			for b.Loop() {
				c.serve(c.bare)
			}
		})
		b.Run("sha256/"+name, func(b *testing.B) {
			c := newCounter(b, size)
			b.ReportAllocs()
			for b.Loop() {
				sha256.Sum256(c.body)
			}
		})
		for _, state := range []string{"first", "replay"} {
			b.Run("locker "+state+"/"+name, func(b *testing.B) {
				c := newCounter(b, size)
				c.prepare(b, state)
				b.ReportAllocs()
				for b.Loop() {
					c.serveByLocker(b)
				}
			})
			b.Run(state+"/"+name, func(b *testing.B) {
				c := newCounter(b, size)
				c.prepare(b, state)
				b.ReportAllocs()
				for b.Loop() {
					c.serve(c.protected)
				}
			})
		}
	}
}
