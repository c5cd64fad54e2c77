package middleware_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"testing"

	"github.com/onceguard/onceguard/middleware"
)

// recordKey is a storage key for tests of the decoder alone.
const recordKey = "test:{2e9e}ba78"

// Where the parts of a record's content begin that has no extension.
const (
	fingerprintLen = 8 + 32
	extensionAt    = fingerprintLen + 8
	responseAt     = extensionAt + 1
)

// withoutExtension returns the content of a record with an empty extension.
func withoutExtension(content []byte) []byte {
	size, n := binary.Uvarint(content[extensionAt:])
	return append(append(bytes.Clone(content[:extensionAt]), 0), content[extensionAt+n+int(size):]...)
}

// forms are the ways to store a record, by the options that make them.
func forms() map[string][]middleware.Option {
	return map[string][]middleware.Option{
		"plain":                    nil,
		"compressed":               {middleware.WithCompression(0)},
		"encrypted":                {middleware.WithEncryption(master(1))},
		"compressed and encrypted": {middleware.WithCompression(0), middleware.WithEncryption(master(1))},
	}
}

// A record is read for as long as its retention lasts, by whatever version runs then: what is written must stay what it
// was.
func TestRecordFormat(t *testing.T) {
	t.Parallel()
	const want = "01" + "df0d351e" + "00" + // version, checksum, flags
		"64656661756c7431" + "f100000000000000000000000000000000000000000000000000000000000000" + // fingerprint
		"0000018bcfe5687b" + "00" + // completed, extension
		"c901" + "5d" + // 201, 93 bytes of header and trailer
		"04" + "00084c6f636174696f6e010b2f7061796d656e74732f31" + "000c436f6e74656e742d5479706500" +
		"0104566172790206416363657074064f726967696e" + "020c582d506f77657265642d427900" +
		"01" + "000a582d436865636b73756d0103616263" +
		"626f6479"
	if got := hex.EncodeToString(middleware.NewCodec().Encode(recordKey, []byte("body"))); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// extended returns the content of a record whose extension has what some later release adds.
func extended(content []byte) []byte {
	const later = "what a later release adds"
	size, n := binary.Uvarint(content[extensionAt:])
	fields, rest := content[extensionAt+n:][:size], content[extensionAt+n+int(size):]
	return slices.Concat(content[:extensionAt], []byte{byte(len(fields) + len(later))}, fields, []byte(later), rest)
}

// FuzzRecord feeds the decoder with whatever may be under a key, also behind a right checksum and a right encryption.
// What it takes it must read whole, and nothing may become larger than what DEFLATE can make of so many bytes.
func FuzzRecord(f *testing.F) {
	plain := middleware.NewCodec()
	codecs := make([]*middleware.Codec, 0, len(forms()))
	for _, opts := range forms() {
		codecs = append(codecs, middleware.NewCodec(opts...))
	}
	f.Add(byte(0), plain.Encode(recordKey, []byte("body")))
	f.Add(byte(0), plain.Encode(recordKey, nil)[6:])
	f.Add(byte(middleware.FlagTombstone), plain.Encode(recordKey, nil)[6:])
	f.Add(byte(middleware.FlagCompressed), compressedContent(f, plain.Encode(recordKey, bytes.Repeat([]byte("body"), 100))[6:]))
	f.Add(byte(middleware.FlagEncrypted), plain.Note(recordKey))
	f.Add(byte(0), extended(plain.Encode(recordKey, nil)[6:]))
	f.Add(byte(0), []byte{})
	f.Add(byte(0xff), bytes.Repeat([]byte{0xff}, 100))
	f.Fuzz(func(t *testing.T, flags byte, b []byte) {
		want := plain.Encode(recordKey, b)
		for _, c := range codecs {
			encoded := c.Encode(recordKey, b)
			if _, ok := c.Decode("another key", encoded); ok {
				t.Error("read under another key")
			}
			if got, ok := c.Decode(recordKey, encoded); !ok || !bytes.Equal(got, want) {
				t.Errorf("what was encoded reads as %x, want %x", got, want)
			}

			forged := c.Forge(recordKey, flags, b)
			got, ok := c.Decode(recordKey, forged)
			if len(got) > 1032*(len(b)+1) {
				t.Errorf("%d bytes were made of %d", len(got), len(b))
			}
			if flags := flags &^ middleware.FlagEncrypted; ok && flags&middleware.FlagCompressed == 0 {
				if want := plain.Forge(recordKey, flags, withoutExtension(b)); !bytes.Equal(got, want) {
					t.Errorf("%x was read as %x", want, got)
				}
			}
			c.ReadNote(recordKey, b)
		}
		b = bytes.Clone(b)
		middleware.PutChecksum(recordKey, b)
		if got, ok := plain.Decode(recordKey, b); ok && b[5]&middleware.FlagCompressed == 0 {
			if want := plain.Forge(recordKey, b[5], withoutExtension(b[6:])); !bytes.Equal(got, want) {
				t.Errorf("%x was read as %x", b, got)
			}
		}
	})
}

// compressedContent returns the content of a record with its response compressed.
func compressedContent(t testing.TB, content []byte) []byte {
	t.Helper()
	response, ok := middleware.Deflate(content[responseAt:])
	if !ok {
		t.Fatal("the response does not get smaller")
	}
	return append(bytes.Clone(content[:responseAt]), response...)
}
