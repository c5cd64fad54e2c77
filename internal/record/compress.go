package record

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"io"
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
	to := bytes.NewBuffer(binary.AppendUvarint(dst, uint64(size)))
	w := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(w)
	w.Reset(to)
	for _, p := range parts {
		_, _ = w.Write(p) // a bytes.Buffer takes everything
	}
	_ = w.Close()
	return to.Bytes(), to.Len() < len(dst)+size
}

// deflaters are compressors, each with about 1.2 MB of tables.
var deflaters = sync.Pool{New: func() any { return must(flate.NewWriter(nil, compressionLevel)) }}

// inflate decompresses what Deflate has appended. ok is false if the result does not have the length that precedes it.
// The memory grows with the decompressed bytes, so a forged length alone makes no large slice.
func inflate(payload []byte) (inflated []byte, ok bool) {
	size, compressed, ok := CutUvarint(payload, maxInflated)
	if !ok || size/maxRatio > len(compressed) {
		return nil, false
	}
	from := bytes.NewReader(compressed)
	r := inflaters.Get().(io.Reader)
	defer inflaters.Put(r)
	if err := r.(flate.Resetter).Reset(from, nil); err != nil {
		return nil, false
	}
	to := bytes.NewBuffer(make([]byte, 0, min(size, 16*len(compressed))+bytes.MinRead))
	n, err := to.ReadFrom(io.LimitReader(r, int64(size)+1)) // one byte more shows whether the result is too long
	return to.Bytes(), err == nil && n == int64(size) && from.Len() == 0
}

// inflaters are decompressors, each with about 40 kB of tables.
var inflaters = sync.Pool{New: func() any { return flate.NewReader(new(bytes.Reader)) }}
