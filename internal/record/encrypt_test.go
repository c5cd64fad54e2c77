package record_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/record"
)

// The first key encrypts, each decrypts, and what is not encrypted is read only with PlaintextReads.
func TestKeys(t *testing.T) {
	t.Parallel()
	keys := func(n ...byte) record.Keyring {
		var all [][]byte
		for _, n := range n {
			all = append(all, master(n))
		}
		if all == nil {
			return nil
		}
		return ring(all...)
	}
	for name, test := range map[string]struct {
		writer, reader record.Codec
		want           string // of the error; empty: it is read
	}{
		"the second key":        {record.Codec{Keys: keys(1)}, record.Codec{Keys: keys(2, 1)}, ""},
		"no key":                {record.Codec{Keys: keys(1, 2)}, record.Codec{Keys: keys(2, 3)}, "no key of WithEncryption"},
		"without encryption":    {record.Codec{Keys: keys(1)}, record.Codec{}, "there is no WithEncryption"},
		"not encrypted":         {record.Codec{}, record.Codec{Keys: keys(1)}, "no WithPlaintextReads"},
		"not encrypted, but ok": {record.Codec{}, record.Codec{Keys: keys(1), PlaintextReads: true}, ""},
	} {
		_, ofRecord := test.reader.Decode(storageKey, test.writer.Append(nil, storageKey, someRecord([]byte("body"))))
		note := test.writer.EncodeNote(nil, storageKey, record.Note{Fingerprint: fingerprint})
		_, ofNote := test.reader.DecodeNote(storageKey, note)
		for _, err := range []error{ofRecord, ofNote} {
			isWanted := err == nil
			if test.want != "" {
				isWanted = errors.Is(err, record.ErrUnreadable) && strings.Contains(err.Error(), test.want)
			}
			if !isWanted {
				t.Errorf("%s: %v, want %q", name, err, test.want)
			}
		}
	}
	defer func() {
		if got := fmt.Sprint(recover()); got != "WithX: no key" {
			t.Errorf("a Keyring without a key: %s", got)
		}
	}()
	record.NewKeyring("WithX", nil)
}

// A note and a record have different purposes: neither decrypts as the other, even under the same storage key.
func TestPurposes(t *testing.T) {
	t.Parallel()
	c := &record.Codec{Keys: ring(master(1))}
	note := c.EncodeNote(nil, storageKey, record.Note{Fingerprint: fingerprint})
	if _, err := c.DecodeNote(storageKey, note); err != nil {
		t.Error(err)
	}
	_, err := c.DecodeNote("another key", note)
	wantUnreadable(t, "a note of another key", err)
	forged := append([]byte{1, 0, 0, 0, 0, record.FlagEncrypted | record.FlagTombstone}, note[1:]...)
	putChecksum(forged)
	_, err = c.Decode(storageKey, forged)
	wantUnreadable(t, "a note as a record", err)
	forged = forge(c, 0, make([]byte, fingerprintLen+1))
	_, err = c.DecodeNote(storageKey, append([]byte{record.NoteEncrypted}, forged[record.ContentAt:]...))
	wantUnreadable(t, "a record as a note", err)
}

// Behind a right checksum, which anybody who can write to Redis can compute, a changed record does not decrypt.
func TestAuthenticated(t *testing.T) {
	t.Parallel()
	c := &record.Codec{Keys: ring(master(1)), PlaintextReads: true}
	good := c.Append(nil, storageKey, someRecord([]byte("body")))
	for i := range good {
		if i >= record.ChecksumAt && i < record.FlagsAt {
			continue
		}
		for bit := range 8 {
			forged := bytes.Clone(good)
			forged[i] ^= 1 << bit
			putChecksum(forged)
			if r, err := c.Decode(storageKey, forged); err == nil && i != record.FlagsAt {
				t.Fatalf("byte %d, bit %d: %+v", i, bit, r)
			} else if err == nil && bytes.Contains(r.Body, []byte("body")) {
				t.Fatalf("the flags %08b: %+v", forged[i], r)
			}
		}
	}
}

// The encryption is what its documentation says, made of nothing but the standard's parts.
func TestEncryptionIsAsDocumented(t *testing.T) {
	t.Parallel()
	c := &record.Codec{Keys: ring(master(1), master(2))}
	for purpose, encrypted := range map[string]struct{ visible, content []byte }{
		record.RecordPurpose: {
			[]byte{1, record.FlagEncrypted}, c.Append(nil, storageKey, someRecord([]byte("body")))[record.ContentAt:],
		},
		record.NotePurpose: {
			[]byte{record.NoteEncrypted}, c.EncodeNote(nil, storageKey, record.Note{Fingerprint: fingerprint})[1:],
		},
	} {
		derived, err := hkdf.Key(sha256.New, bytes.Repeat([]byte{1}, 32), nil, purpose+storageKey, 32)
		if err != nil {
			t.Fatal(err)
		}
		block, err := aes.NewCipher(derived)
		if err != nil {
			t.Fatal(err)
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			t.Fatal(err)
		}
		opened, err := aead.Open(nil, encrypted.content[:12], encrypted.content[12:], append(encrypted.visible, storageKey...))
		if err != nil || !bytes.HasPrefix(opened, []byte("default1\xf1")) {
			t.Errorf("%s: got %x, %v, want what begins with the fingerprint", purpose, opened, err)
		}
	}
}

// A wrong key is named by its place in the list, counted from one.
func TestWrongKey(t *testing.T) {
	t.Parallel()
	defer func() {
		const want = "WithEncryption: key 2 has 31 bytes, not 32"
		if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
			t.Errorf("it panics with %q, want %q", got, want)
		}
	}()
	ring(make([]byte, 32), make([]byte, 31))
}
