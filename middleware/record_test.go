package middleware_test

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/middleware"
)

// Where the parts of a record's content begin. The form is tested in package record.
const (
	fingerprintLen = 8 + 32
	extensionAt    = fingerprintLen + 8
)

// forms are the ways to store a record, by the options that make them.
func forms() map[string][]middleware.Option {
	return map[string][]middleware.Option{
		"plain":                    nil,
		"compressed":               {middleware.WithCompression(0)},
		"encrypted":                {middleware.WithEncryption(master(1))},
		"compressed and encrypted": {middleware.WithCompression(0), middleware.WithEncryption(master(1))},
	}
}

// extended returns the content of a record whose extension has what some later release adds.
func extended(content []byte) []byte {
	const later = "what a later release adds"
	size, n := binary.Uvarint(content[extensionAt:])
	fields, rest := content[extensionAt+n:][:size], content[extensionAt+n+int(size):]
	return slices.Concat(content[:extensionAt], []byte{byte(len(fields) + len(later))}, fields, []byte(later), rest)
}

// forge returns a record with a right checksum, whatever the content is. If encrypts is set, it is encrypted with
// master(1).
func forge(storageKey string, encrypts bool, flags byte, content []byte) []byte {
	b := append(make([]byte, record.ContentAt), content...)
	if encrypts {
		flags |= record.FlagEncrypted
		k := record.NewKeyring("", [][]byte{master(1)})
		b = k.Encrypt(record.RecordPurpose, storageKey, []byte{record.Version, flags}, b, record.ContentAt)
	}
	b[0], b[record.FlagsAt] = record.Version, flags
	putChecksum(storageKey, b)
	return b
}

// forgeNote is forge for a note.
func forgeNote(storageKey string, encrypts bool, content []byte) []byte {
	if !encrypts {
		return append([]byte{record.NotePlain}, content...)
	}
	form := []byte{record.NoteEncrypted}
	k := record.NewKeyring("", [][]byte{master(1)})
	return k.Encrypt(record.NotePurpose, storageKey, form, append(bytes.Clone(form), content...), 1)
}

// putChecksum puts the right checksum into a record.
func putChecksum(storageKey string, b []byte) {
	binary.BigEndian.PutUint32(b[record.ChecksumAt:], record.Checksum(storageKey, b))
}
