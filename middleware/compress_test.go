package middleware_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// noise returns n bytes that no compression makes smaller.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

// The smaller one of the two forms is stored, and below the minimum always the plain one.
func TestCompression(t *testing.T) {
	t.Parallel()
	plain := middleware.NewCodec()
	const rest = 6 + responseAt // all but the response
	for name, c := range map[string]struct {
		body       []byte
		min        int // in relation to the length of the response
		compressed bool
	}{
		"repetitive":               {bytes.Repeat([]byte("payment "), 1000), 0, true},
		"as long as the minimum":   {bytes.Repeat([]byte("payment "), 1000), 0, true},
		"a byte below the minimum": {bytes.Repeat([]byte("payment "), 1000), 1, false},
		"noise":                    {noise(100_000), 0, false},
		"noise, one block":         {noise(65_000), 0, false},
		"empty":                    {nil, 0, false},
		"zeros":                    {make([]byte, 1<<20), 0, true},
		"noise, then zeros":        {append(noise(1<<17), make([]byte, 1<<17)...), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := plain.Encode(recordKey, c.body)
			codec := middleware.NewCodec(middleware.WithCompression(len(want) - rest + c.min))
			got := codec.Encode(recordKey, c.body)
			if compressed := got[5] == middleware.FlagCompressed; compressed != c.compressed {
				t.Errorf("compressed: %v, want %v", compressed, c.compressed)
			}
			if c.compressed == (len(got) >= len(want)) || !c.compressed && !bytes.Equal(got, want) {
				t.Errorf("%d bytes are stored, %d without compression", len(got), len(want))
			}
			if again, ok := plain.Decode(recordKey, got); !ok || !bytes.Equal(again, want) {
				t.Error("what was stored reads as something else")
			}
		})
	}
}

// A minimum below any record, and none.
func TestCompressionMinimum(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for want, min := range map[bool]int{true: 500, false: 5000} {
			b.FlushAll(t)
			s := serve(t, b, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, strings.Repeat("payment ", 500))
			}, middleware.WithCompression(min))
			e := s.want(s.send(), http.StatusOK, middleware.Executed)
			if got := len(rawOf(t, b, e.Key)) < 1000; got != want {
				t.Errorf("WithCompression(%d): compressed: %v", min, got)
			}
			s.want(s.send(), http.StatusOK, middleware.Replayed)
		}
	})
}

// A record whose compressed part has another length than it states, does not end, or goes on after its end, is not
// read, and takes little memory.
func TestForgedCompression(t *testing.T) {
	head := make([]byte, responseAt)
	content := middleware.NewCodec().Encode(recordKey, bytes.Repeat([]byte("payment "), 10_000))[6+len(head):]
	good, ok := middleware.Deflate(content)
	if !ok {
		t.Fatal("the response does not get smaller")
	}
	size, n := binary.Uvarint(good)
	stream := good[n:]
	claim := func(size uint64, stream []byte) []byte {
		return append(binary.AppendUvarint(nil, size), stream...)
	}
	zeros, _ := middleware.Deflate(make([]byte, 1<<24))
	_, n = binary.Uvarint(zeros)

	for name, codec := range map[string]*middleware.Codec{
		"plain":     middleware.NewCodec(),
		"encrypted": middleware.NewCodec(middleware.WithEncryption(master(1))),
	} {
		read := func(response []byte) bool {
			record := codec.Forge(recordKey, middleware.FlagCompressed, append(bytes.Clone(head), response...))
			_, ok := codec.Decode(recordKey, record)
			return ok
		}
		if !read(good) {
			t.Fatalf("%s: what is right is not read", name)
		}
		for what, forged := range map[string][]byte{
			"nothing":                   {},
			"a size alone":              claim(size, nil),
			"no size":                   stream,
			"one byte less":             claim(size-1, stream),
			"one byte more":             claim(size+1, stream),
			"as much as it could be":    claim(1032*uint64(len(stream)), stream),
			"more than it could be":     claim(1<<40, stream),
			"the largest int":           claim(1<<63-1, stream),
			"the largest number":        claim(1<<64-1, stream),
			"a size in a longer form":   append([]byte{good[0], good[1], good[2] | 0x80, 0}, stream...),
			"cut short":                 good[:len(good)-1],
			"a byte behind the end":     append(bytes.Clone(good), 0),
			"a stream behind the end":   append(bytes.Clone(good), stream...),
			"noise":                     claim(100_000, noise(1000)),
			"noise, 60 MB by its word":  claim(60<<20, noise(1<<16)),
			"zeros that are no record":  claim(1<<24, zeros[n:]),
			"less than the zeros":       claim(1, zeros[n:]),
			"a compressed empty stream": {0, 1, 0, 0, 0xff, 0xff},
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if read(forged) {
				t.Errorf("%s: %s: was read", name, what)
			}
			runtime.ReadMemStats(&after)
			// The result's last growth at its most, and below the encryption a copy; tables of the inflater.
			limit := uint64(3*1032*len(forged) + 1<<18)
			if what != "zeros that are no record" {
				limit = 2 << 20
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > limit {
				t.Errorf("%s: %s: %d bytes of memory, want %d at the most", name, what, got, limit)
			}
		}
	}
}
