package record

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"sync"
)

// compressionLevel is the fastest level that finds repetitions. On JSON the default level takes two to three times as
// long and makes the result 6 to 15 % smaller.
const compressionLevel = flate.BestSpeed

// maxInflated is the longest response, in bytes, that is compressed. It bounds the memory that a forged record can
// take.
const maxInflated = 64 << 20

// maxRatio is how many bytes DEFLATE can make of one: two bits can repeat 258 bytes.
const maxRatio = 1032

// Deflate appends to dst the length of all parts, and the parts compressed. ok is false if that is not shorter than the
// parts. Even then it may have written to the spare capacity of dst.
func Deflate(dst []byte, parts ...[]byte) (compressed []byte, ok bool) {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	limit := len(dst) + size - 1
	dst = binary.AppendUvarint(dst, uint64(size))

	d := deflaters.Get().(*deflater)
	defer d.free()
	d.to = bounded{dst, limit}
	d.w.Reset(&d.to)
	for _, p := range parts {
		if _, err := d.w.Write(p); err != nil {
			return nil, false
		}
	}
	if err := d.w.Close(); err != nil {
		return nil, false
	}
	return d.to.b, true
}

// deflater is a pooled compressor, with about 1.2 MB of tables, and the slice it writes to.
type deflater struct {
	w  *flate.Writer
	to bounded
}

var deflaters = sync.Pool{New: func() any {
	return &deflater{w: must(flate.NewWriter(nil, compressionLevel))}
}}

// free returns d to the pool, without the slice.
func (d *deflater) free() {
	d.to = bounded{}
	deflaters.Put(d)
}

// bounded is a writer to b, which grows to at most limit bytes.
type bounded struct {
	b     []byte
	limit int
}

var errFull = errors.New("full")

func (b *bounded) Write(p []byte) (int, error) {
	if len(b.b)+len(p) > b.limit {
		return 0, errFull
	}
	b.b = append(b.b, p...)
	return len(p), nil
}

// inflate decompresses all of compressed. ok is false if the result does not have the given size. The memory grows with
// the decompressed bytes, so a forged size alone makes no large slice.
func inflate(compressed []byte, size int) (inflated []byte, ok bool) {
	if size > maxInflated || size/maxRatio > len(compressed) {
		return nil, false
	}
	i := inflaters.Get().(*inflater)
	defer i.free()
	i.from.Reset(compressed)
	if err := i.r.(flate.Resetter).Reset(&i.from, nil); err != nil {
		return nil, false
	}
	b := make([]byte, 0, min(size, 16*len(compressed)))
	for len(b) < size {
		if len(b) == cap(b) {
			b = slices.Grow(b, min(size-len(b), len(b)+bytes.MinRead))
		}
		n, err := i.r.Read(b[len(b):min(size, cap(b))])
		b = b[:len(b)+n]
		if err != nil && len(b) < size {
			return nil, false
		}
	}
	n, err := i.r.Read(i.more[:])
	atEnd := n == 0 && err == io.EOF && i.from.Len() == 0
	if !atEnd {
		return nil, false
	}
	return b, true
}

// inflater is a pooled decompressor, with about 40 kB of tables, and the bytes it reads from.
type inflater struct {
	from bytes.Reader
	r    io.ReadCloser
	more [1]byte // for the Read that must return nothing but io.EOF
}

var inflaters = sync.Pool{New: func() any {
	i := new(inflater)
	i.r = flate.NewReader(&i.from)
	return i
}}

// free returns i to the pool, without the bytes.
func (i *inflater) free() {
	i.from.Reset(nil)
	inflaters.Put(i)
}
