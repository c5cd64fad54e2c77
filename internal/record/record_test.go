package record_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/record"
)

const storageKey = "test:{2e9e}ba78"

// Where the parts of a record's content begin that has no extension.
const (
	fingerprintLen = 8 + 32
	extensionAt    = fingerprintLen + 8
	payloadAt      = extensionAt + 1
)

// master returns the n-th key.
func master(n byte) []byte { return bytes.Repeat([]byte{n}, record.KeySize) }

// ring returns the Keyring of these keys.
func ring(keys ...[]byte) record.Keyring { return record.NewKeyring("WithEncryption", keys) }

// codecs returns a Codec for each way to store a record.
func codecs() map[string]*record.Codec {
	return map[string]*record.Codec{
		"plain":                    {},
		"value":                    {Door: record.Value},
		"compressed":               {Compress: true},
		"encrypted":                {Keys: ring(master(1))},
		"compressed and encrypted": {Compress: true, Keys: ring(master(1))},
		"encrypted value":          {Door: record.Value, Keys: ring(master(1))},
	}
}

var fingerprint = record.Fingerprint{Kind: record.Kind([]byte("default1")), Sum: [32]byte{0xf1}}

// someRecord returns a record with this payload.
func someRecord(payload []byte) *record.Record {
	half := len(payload) / 2
	return &record.Record{
		Fingerprint: fingerprint, Completed: time.UnixMilli(1_700_000_000_123), Head: payload[:half], Body: payload[half:],
	}
}

// forge returns a record whose checksum and encryption are right, whatever the content is.
func forge(c *record.Codec, flags byte, content []byte) []byte {
	b := append(make([]byte, record.ContentAt), content...)
	if len(c.Keys) > 0 {
		flags |= record.FlagEncrypted
		b = c.Keys.Encrypt(record.RecordPurpose, storageKey, []byte{record.Version, flags}, b, record.ContentAt)
	}
	b[0], b[record.FlagsAt] = record.Version, flags
	putChecksum(b)
	return b
}

// putChecksum puts the right checksum into b, so that a test reaches what is behind it. It leaves a shorter b alone.
func putChecksum(b []byte) {
	if len(b) >= record.ContentAt {
		binary.BigEndian.PutUint32(b[record.ChecksumAt:], record.Checksum(storageKey, b))
	}
}

// wantUnreadable checks that an error is one of those that a caller knows.
func wantUnreadable(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, record.ErrUnreadable) {
		t.Errorf("%s: %v, want ErrUnreadable", what, err)
	}
}

// A record is read for as long as its retention lasts, by whatever version runs then: what is written must stay what it
// was.
func TestFormat(t *testing.T) {
	t.Parallel()
	r := someRecord([]byte("body"))
	trace := record.ParseTrace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	const start, end = "64656661756c7431" + "f100000000000000000000000000000000000000000000000000000000000000" + "0000018bcfe5687b", "626f6479"
	for name, test := range map[string]struct {
		door     record.Door
		change   func(r *record.Record)
		checksum string
		rest     string // the flags and the content
	}{
		"plain":     {record.HTTP, func(*record.Record) {}, "4a4da616", "00" + start + "00" + end},
		"value":     {record.Value, func(*record.Record) {}, "1d20135e", "08" + start + "00" + end},
		"tombstone": {record.HTTP, func(r *record.Record) { r.Tombstone = true }, "40a010bf", "01" + start + "00" + end},
		"unknown": {
			record.HTTP, func(r *record.Record) { r.Tombstone, r.Unknown = true, true }, "ea8fe5ad", "01" + start + "02" + "0300" + end,
		},
		"traced": {
			record.HTTP, func(r *record.Record) { r.Trace = trace }, "0f14c4a5",
			"00" + start + "1b" + "0119" + "0af7651916cd43dd8448eb211c80319c" + "b7ad6b7169203331" + "01" + end,
		},
	} {
		r := *r
		test.change(&r)
		got := (&record.Codec{Door: test.door}).Append([]byte("before"), storageKey, &r)
		if want := hex.EncodeToString([]byte("before")) + "01" + test.checksum + test.rest; hex.EncodeToString(got) != want {
			t.Errorf("%s:\ngot  %x\nwant %s", name, got, want)
		}
		if len(got) > len("before")+r.Room() {
			t.Errorf("%s: %d bytes, and room for %d", name, len(got), r.Room())
		}
	}
}

// Every Codec reads what it writes, and nothing of another key or another door.
func TestDecode(t *testing.T) {
	t.Parallel()
	for name, c := range codecs() {
		for _, tombstone := range []bool{false, true} {
			payload := bytes.Repeat([]byte("payment "), 100)
			r := someRecord(payload)
			r.Tombstone, r.Unknown = tombstone, tombstone
			encoded := c.Append(nil, storageKey, r)
			if len(encoded) > r.Room() {
				t.Errorf("%s: %d bytes, and room for %d", name, len(encoded), r.Room())
			}
			got, err := c.Decode(storageKey, encoded)
			if err != nil || !bytes.Equal(got.Body, payload) || got.Head != nil {
				t.Fatalf("%s: %v, %q", name, err, got.Body)
			}
			if !got.Completed.Equal(r.Completed) || got.Fingerprint != r.Fingerprint || got.Tombstone != tombstone || got.Unknown != tombstone {
				t.Errorf("%s: %+v, want %+v", name, got, r)
			}
			_, err = c.Decode("another key", encoded)
			wantUnreadable(t, name+", another key", err)
			other := *c
			other.Door = record.Value - c.Door
			_, err = other.Decode(storageKey, encoded)
			wantUnreadable(t, name+", another door", err)
			_, err = other.DecodeNote(storageKey, c.EncodeNote(nil, storageKey, record.Note{}))
			wantUnreadable(t, name+", another door's note", err)
			for i := range encoded {
				damaged := bytes.Clone(encoded)
				damaged[i]++
				_, err := c.Decode(storageKey, damaged)
				wantUnreadable(t, name+", damaged", err)
				_, err = c.Decode(storageKey, encoded[:i])
				wantUnreadable(t, name+", cut short", err)
			}
		}
	}
}

// Room is what the longest form of a record takes: a greater buffer is wasted, and a smaller one grows.
func TestRoom(t *testing.T) {
	t.Parallel()
	r := someRecord([]byte("body"))
	r.Tombstone, r.Unknown, r.Trace = true, true, record.ParseTrace(someTrace)
	if n := len(codecs()["encrypted"].Append(nil, storageKey, r)); n != r.Room() {
		t.Errorf("%d bytes, and room for %d", n, r.Room())
	}
}

// Content that is too short, and flags of a later release, are unreadable behind a right checksum, too.
func TestForgedContent(t *testing.T) {
	t.Parallel()
	for name, c := range codecs() {
		if c.Door != record.HTTP {
			continue
		}
		content := make([]byte, payloadAt)
		if r, err := c.Decode(storageKey, forge(c, 0, content)); err != nil || len(r.Body) > 0 {
			t.Errorf("%s: %+v, %v; want an empty payload", name, r, err)
		}
		for n := range content {
			_, err := c.Decode(storageKey, forge(c, 0, content[:n]))
			wantUnreadable(t, name+", too short", err)
		}
		for _, flags := range []byte{1 << 3, 1 << 4, 1 << 7} {
			_, err := c.Decode(storageKey, forge(c, flags, content))
			wantUnreadable(t, name+", a flag", err)
		}
		for _, extension := range []string{"\x01", "\x80\x00", "\x02a", "\x80"} {
			_, err := c.Decode(storageKey, forge(c, 0, append(make([]byte, extensionAt), extension...)))
			wantUnreadable(t, name+", an extension", err)
		}
	}
}

// The records and notes of the first release are read. What a door makes of them is tested there.
func TestStored(t *testing.T) {
	t.Parallel()
	// ann's payment under the key "k" in the namespace "test"
	const storageKey = "test:{2095}8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a"
	c := &record.Codec{Keys: ring(master(2), master(1)), PlaintextReads: true}
	files, err := filepath.Glob("../../middleware/testdata/stored/*.hex")
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
		if err != nil {
			t.Fatal(file, err)
		}
		if strings.HasPrefix(filepath.Base(file), "note-") {
			_, err = c.DecodeNote(storageKey, b)
		} else {
			_, err = c.Decode(storageKey, b)
		}
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// withoutExtension returns the content of a record with an empty extension.
func withoutExtension(content []byte) []byte {
	size, n := binary.Uvarint(content[extensionAt:])
	return append(append(bytes.Clone(content[:extensionAt]), 0), content[extensionAt+n+int(size):]...)
}

// FuzzRecord feeds the decoder with whatever may be under a key, also behind a right checksum and a right encryption.
// What it takes it must read whole, and nothing may become larger than what DEFLATE can make of so many bytes.
func FuzzRecord(f *testing.F) {
	plain := new(record.Codec)
	some := plain.Append(nil, storageKey, someRecord([]byte("body")))
	long := bytes.Repeat([]byte("body"), 100)
	compressed := (&record.Codec{Compress: true}).Append(nil, storageKey, someRecord(long))
	f.Add(byte(0), some)
	f.Add(byte(0), some[record.ContentAt:])
	f.Add(byte(record.FlagTombstone), some[record.ContentAt:])
	f.Add(byte(record.FlagCompressed), compressed[record.ContentAt:])
	f.Add(byte(record.FlagEncrypted), plain.EncodeNote(nil, storageKey, record.Note{Fingerprint: fingerprint}))
	f.Add(byte(0), append(bytes.Clone(some[record.ContentAt:][:extensionAt]), "\x19what a later release addspayload"...))
	f.Add(byte(0), []byte{})
	f.Add(byte(0xff), bytes.Repeat([]byte{0xff}, 100))
	f.Fuzz(func(t *testing.T, flags byte, b []byte) {
		again := func(flags byte, r *record.Record) []byte {
			r.Trace, r.Unknown = record.Trace{}, false
			return (&record.Codec{Door: record.Door(flags >> 3 & 1)}).Append(nil, storageKey, r)
		}
		for name, c := range codecs() {
			encoded := c.Append(nil, storageKey, someRecord(b))
			if got, err := c.Decode(storageKey, encoded); err != nil || !bytes.Equal(got.Body, b) {
				t.Errorf("%s: what was encoded reads as %x, %v; want %x", name, got.Body, err, b)
			}
			r, err := c.Decode(storageKey, forge(c, flags, b))
			if len(r.Body) > 1032*(len(b)+1) {
				t.Errorf("%s: %d bytes were made of %d", name, len(r.Body), len(b))
			}
			if flags := flags &^ record.FlagEncrypted; err == nil && flags&record.FlagCompressed == 0 {
				if got, want := again(flags, &r), forge(plain, flags, withoutExtension(b)); !bytes.Equal(got, want) {
					t.Errorf("%s: %x was read as %x", name, want, got)
				}
			}
		}
		b = bytes.Clone(b)
		putChecksum(b)
		if r, err := plain.Decode(storageKey, b); err == nil && b[record.FlagsAt]&record.FlagCompressed == 0 {
			flags := b[record.FlagsAt]
			if got, want := again(flags, &r), forge(plain, flags, withoutExtension(b[record.ContentAt:])); !bytes.Equal(got, want) {
				t.Errorf("%x was read as %x", b, got)
			}
		}
	})
}

// A uvarint has its shortest form, and at most the limit.
func TestCutUvarint(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int{"\x00": 0, "\x7f": 127, "\xe7\x07": 999} {
		if v, rest, ok := record.CutUvarint([]byte(in+"rest"), 999); v != want || string(rest) != "rest" || !ok {
			t.Errorf("%x: %d, %q, %v; want %d", in, v, rest, ok, want)
		}
	}
	for _, wrong := range []string{"", "\x80", "\x80\x00", "\xe7\x87\x00", "\xe8\x07", strings.Repeat("\xff", 10)} {
		if v, _, ok := record.CutUvarint([]byte(wrong), 999); ok {
			t.Errorf("%x: %d, want none", wrong, v)
		}
	}
}
