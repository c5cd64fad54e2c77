package record_test

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/onceguard/onceguard/internal/record"
)

// forgeNote returns a note whose form and encryption are right, whatever the content is.
func forgeNote(c *record.Codec, content []byte) []byte {
	form := byte(record.NotePlain)
	if len(c.Keys) > 0 {
		form = record.NoteEncrypted
	}
	form += 2 * byte(c.Door)
	note := append([]byte{form}, content...)
	if len(c.Keys) > 0 {
		return c.Keys.Encrypt(record.NotePurpose, storageKey, []byte{form}, note, 1)
	}
	return note
}

// What is written of a note must stay what it was.
func TestNoteFormat(t *testing.T) {
	t.Parallel()
	const print = "64656661756c7431" + "f100000000000000000000000000000000000000000000000000000000000000"
	for want, test := range map[string]struct {
		door      record.Door
		journaled bool
	}{
		"01" + print + "00":     {record.HTTP, false},
		"01" + print + "020200": {record.HTTP, true},
		"03" + print + "00":     {record.Value, false},
	} {
		c := &record.Codec{Door: test.door}
		room := make([]byte, 0, record.NoteLen)
		note := c.EncodeNote(room, "", record.Note{Fingerprint: fingerprint, Journaled: test.journaled})
		if got := hex.EncodeToString(note); got != want || &note[0] != &room[:1][0] {
			t.Errorf("got  %s\nwant %s, in the room that was given", got, want)
		}
	}
}

// A later release's fields in the extension of a note are skipped. Anything else that is not a note is unreadable.
func TestForgedNote(t *testing.T) {
	t.Parallel()
	for name, c := range codecs() {
		content := fingerprint.AppendTo(nil)
		for extension, journaled := range map[string]bool{
			"\x00": false, "\x02\x02\x00": true, "\x19what a later release adds": false, "\x05\x09\x01a\x02\x00": true,
			"\x01\x02": false, "\x04\x02\x00\x09\x07": true,
		} {
			got, err := c.DecodeNote(storageKey, forgeNote(c, append(bytes.Clone(content), extension...)))
			if err != nil || got.Journaled != journaled || got.Fingerprint != fingerprint {
				t.Errorf("%s: %x: %+v, %v; want journaled %v", name, extension, got, err, journaled)
			}
		}
		for what, content := range map[string][]byte{
			"nothing": {}, "a fingerprint alone": content, "less": content[1:], "a byte too many": append(bytes.Clone(content), 0, 0),
			"an extension that is cut off": append(bytes.Clone(content), 1),
		} {
			_, err := c.DecodeNote(storageKey, forgeNote(c, content))
			wantUnreadable(t, name+", "+what, err)
		}
		_, err := c.DecodeNote(storageKey, nil)
		wantUnreadable(t, name+", no note", err)
	}
}

// FuzzNote feeds the decoder of notes. What it takes has the fingerprint that the content begins with.
func FuzzNote(f *testing.F) {
	plain := new(record.Codec)
	f.Add(plain.EncodeNote(nil, storageKey, record.Note{Fingerprint: fingerprint}))
	f.Add(plain.EncodeNote(nil, storageKey, record.Note{Fingerprint: fingerprint, Journaled: true})[1:])
	f.Add(append(fingerprint.AppendTo(nil), "\x19what a later release adds"...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, c := range codecs() {
			for _, note := range [][]byte{b, forgeNote(c, b)} {
				got, err := c.DecodeNote(storageKey, note)
				if err != nil {
					continue
				}
				made, err := c.DecodeNote(storageKey, c.EncodeNote(nil, storageKey, got))
				if err != nil || made != got {
					t.Errorf("%s: %+v becomes %+v, %v", name, got, made, err)
				}
				if isForged := !bytes.Equal(note, b); isForged && !bytes.HasPrefix(b, got.AppendTo(nil)) {
					t.Errorf("%s: %x was read as %+v", name, b, got)
				}
			}
		}
	})
}

// DecodeAny and DecodeAnyNote read what either door has written. Decode and DecodeNote do not read the other's.
func TestDecodeOfAnyDoor(t *testing.T) {
	t.Parallel()
	for _, door := range []record.Door{record.HTTP, record.Value} {
		for name, keys := range map[string]record.Keyring{"plain": nil, "encrypted": ring(master(1))} {
			c := &record.Codec{Door: door, Keys: keys}
			other := &record.Codec{Door: record.HTTP + record.Value - door, Keys: keys}
			encoded, note := c.Append(nil, storageKey, someRecord([]byte("b"))), c.EncodeNote(nil, storageKey, record.Note{Fingerprint: fingerprint})
			for _, reader := range []*record.Codec{c, other} {
				r, found, err := reader.DecodeAny(storageKey, encoded)
				if err != nil || found != door || string(r.Body) != "b" {
					t.Errorf("%s, %v: %+v, of %v, %v", name, door, r, found, err)
				}
				if n, found, err := reader.DecodeAnyNote(storageKey, note); err != nil || found != door || n.Fingerprint != fingerprint {
					t.Errorf("%s, %v: %+v, of %v, %v", name, door, n, found, err)
				}
			}
			_, err := other.Decode(storageKey, encoded)
			wantUnreadable(t, name, err)
			_, err = other.DecodeNote(storageKey, note)
			wantUnreadable(t, name, err)
		}
	}
	for n := range record.ContentAt + 1 {
		_, _, err := new(record.Codec).DecodeAny(storageKey, make([]byte, n))
		wantUnreadable(t, "a short record", err)
		_, _, err = new(record.Codec).DecodeAnyNote(storageKey, make([]byte, n))
		wantUnreadable(t, "a short note", err)
	}
}
