package canonical_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"testing"

	"github.com/onceguard/onceguard/internal/canonical"
)

// recorder is a hash that keeps what was written to it.
type recorder struct {
	hash.Hash
	bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) { return r.Buffer.Write(p) }
func (r *recorder) Reset()                      { r.Buffer.Reset() }

func TestField(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "a", "käse", "\x00\xff", string(make([]byte, 70000))} {
		want := append(binary.BigEndian.AppendUint64(nil, uint64(len(s))), s...)
		var field, fieldBytes recorder
		text, raw := canonical.NewHashOf(&field), canonical.NewHashOf(&fieldBytes)
		text.Field(s)
		text.Flush()
		raw.FieldBytes([]byte(s))
		if !bytes.Equal(field.Bytes(), want) {
			t.Errorf("Field(%.20q) wrote %x, want %x", s, field.Bytes(), want)
		}
		if !bytes.Equal(fieldBytes.Bytes(), want) {
			t.Errorf("FieldBytes(%.20q) wrote %x, want %x", s, fieldBytes.Bytes(), want)
		}
	}
}

func sum(contentType string, body []byte) [sha256.Size]byte {
	h := canonical.NewHash()
	h.Body(contentType, body)
	return h.Sum()
}
