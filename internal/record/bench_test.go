package record_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/record"
)

// listing returns a JSON list of payments with n bytes or a few more, and nothing if n is 0. It compresses as that of
// BenchmarkCompression in package middleware does.
func listing(n int) (b []byte) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	for len(b) < n {
		b = fmt.Appendf(b, `{"id":"%08x-%04x-4%03x-8%03x-%012x","amount":%d,"currency":"%s","status":"%s",`,
			r.Uint32(), r.IntN(1<<16), r.IntN(1<<12), r.IntN(1<<12), r.Uint64N(1<<48), r.IntN(100_000),
			pick("EUR", "USD", "GBP"), pick("succeeded", "pending", "failed"))
		b = fmt.Appendf(b, `"created_at":"%s","customer":"cus_%06d","description":"%s %d"},`,
			time.Unix(1_700_000_000+r.Int64N(1e7), 0).UTC().Format(time.RFC3339), r.IntN(1e6),
			pick("invoice", "order", "refund"), r.IntN(1e5))
	}
	return b
}

// BenchmarkRecord is what the form of a record costs. The times in internal/bench/results/parts.md come from it.
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
