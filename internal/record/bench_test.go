package record_test

import (
	"fmt"
	"testing"

	"github.com/onceguard/onceguard/internal/record"
)

// listing returns a JSON list of payments with n bytes or a few more, and nothing if n is 0.
func listing(n int) (b []byte) {
	for i := 0; len(b) < n; i++ {
		b = fmt.Appendf(b, `{"id":"pay_%08x","amount":%d,"currency":"EUR","status":"settled"},`, uint32(i)*2654435761, i*i%9973)
	}
	return b
}

// BenchmarkRecord is what the form of a record costs.
func BenchmarkRecord(b *testing.B) {
	for _, size := range []int{0, 1 << 10, 16 << 10, 256 << 10} {
		r := someRecord(listing(size))
		for _, form := range []string{"plain", "compressed", "encrypted", "compressed and encrypted"} {
			c, name := codecs()[form], fmt.Sprintf("%dKiB/%s", size>>10, form)
			encoded := c.Append(nil, storageKey, r)
			b.Run(name+"/encode", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					c.Append(make([]byte, 0, r.Room()), storageKey, r)
				}
				b.ReportMetric(float64(len(encoded)), "stored-bytes")
			})
			b.Run(name+"/decode", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := c.Decode(storageKey, encoded); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
	for _, form := range []string{"plain", "encrypted"} {
		c, n := codecs()[form], record.Note{Fingerprint: fingerprint}
		note := c.EncodeNote(nil, storageKey, n)
		b.Run("note/"+form+"/encode", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.EncodeNote(make([]byte, 0, record.NoteLen), storageKey, n)
			}
		})
		b.Run("note/"+form+"/decode", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.DecodeNote(storageKey, note); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
