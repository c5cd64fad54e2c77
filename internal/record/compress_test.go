package record_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/onceguard/onceguard/internal/record"
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
	for name, test := range map[string]struct {
		payload    []byte
		min        int // in relation to the length of the payload
		compressed bool
	}{
		"repetitive":               {bytes.Repeat([]byte("payment "), 1000), -1, true},
		"as long as the minimum":   {bytes.Repeat([]byte("payment "), 1000), 0, true},
		"a byte below the minimum": {bytes.Repeat([]byte("payment "), 1000), 1, false},
		"noise":                    {noise(100_000), 0, false},
		"noise, one block":         {noise(65_000), 0, false},
		"empty":                    {nil, 0, false},
		"zeros":                    {make([]byte, 1<<20), 0, true},
		"noise, then zeros":        {append(noise(1<<17), make([]byte, 1<<17)...), 0, true},
		"as long as can be read":   {make([]byte, 64<<20), 0, true},
		"longer than can be read":  {make([]byte, 64<<20+1), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain := new(record.Codec)
			want := plain.Append(nil, storageKey, someRecord(test.payload))
			c := &record.Codec{Compress: true, CompressMin: len(test.payload) + test.min}
			got := c.Append(nil, storageKey, someRecord(test.payload))
			if compressed := got[record.FlagsAt] == record.FlagCompressed; compressed != test.compressed {
				t.Errorf("compressed: %v, want %v", compressed, test.compressed)
			}
			if test.compressed == (len(got) >= len(want)) || !test.compressed && !bytes.Equal(got, want) {
				t.Errorf("%d bytes are stored, %d without compression", len(got), len(want))
			}
			if r, err := plain.Decode(storageKey, got); err != nil || !bytes.Equal(r.Body, test.payload) {
				t.Errorf("what was stored reads as something else, %v", err)
			}
		})
	}
}

// What Deflate returns is shorter than what it was given, if only by a byte.
func TestDeflateOfLittle(t *testing.T) {
	t.Parallel()
	saved := map[int]bool{}
	for n := range 40 {
		b := bytes.Repeat([]byte("a"), n)
		if got, ok := record.Deflate([]byte("before"), b[:n/2], b[n/2:]); ok {
			saved[len("before")+n-len(got)] = true
		}
	}
	for least := range saved {
		if least < 1 {
			t.Errorf("it saves %d bytes", least)
		}
	}
	if !saved[1] || !saved[16] {
		t.Errorf("it saves %v bytes, and never one alone, or many", saved)
	}
}

// A record whose compressed part has another length than it states, does not end, or goes on after its end, is not
// read, and takes little memory.
func TestForgedCompression(t *testing.T) {
	head := make([]byte, payloadAt)
	good, ok := record.Deflate(nil, bytes.Repeat([]byte("payment "), 10_000))
	if !ok {
		t.Fatal("the payload does not get smaller")
	}
	size, n := binary.Uvarint(good)
	stream := good[n:]
	claim := func(size uint64, stream []byte) []byte {
		return append(binary.AppendUvarint(nil, size), stream...)
	}
	zeros, _ := record.Deflate(nil, make([]byte, 1<<24))
	_, n = binary.Uvarint(zeros)
	for name, c := range map[string]*record.Codec{"plain": {}, "encrypted": {Keys: ring(master(1))}} {
		read := func(payload []byte) bool {
			_, err := c.Decode(storageKey, forge(c, record.FlagCompressed, append(bytes.Clone(head), payload...)))
			return err == nil
		}
		if !read(good) || !read(zeros) {
			t.Fatalf("%s: what is right is not read", name)
		}
		for what, forged := range map[string][]byte{
			"nothing":                  {},
			"a size alone":             claim(size, nil),
			"no size":                  stream,
			"one byte less":            claim(size-1, stream),
			"one byte more":            claim(size+1, stream),
			"as much as it could be":   claim(1032*uint64(len(stream)), stream),
			"more than it could be":    claim(1<<40, stream),
			"the largest int":          claim(1<<63-1, stream),
			"the largest number":       claim(1<<64-1, stream),
			"a size in a longer form":  append([]byte{good[0], good[1], good[2] | 0x80, 0}, stream...),
			"cut short":                good[:len(good)-1],
			"a byte behind the end":    append(bytes.Clone(good), 0),
			"a stream behind the end":  append(bytes.Clone(good), stream...),
			"noise":                    claim(100_000, noise(1000)),
			"noise, 60 MB by its word": claim(60<<20, noise(1<<16)),
			"less than the zeros":      claim(1, zeros[n:]),
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if read(forged) {
				t.Errorf("%s: %s: was read", name, what)
			}
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > 2<<20 {
				t.Errorf("%s: %s: %d bytes of memory, want 2 MiB at most", name, what, got)
			}
		}
	}
}
