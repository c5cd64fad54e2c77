package record

// A note is stored in a claim, for other requests: it has the fingerprint of the request that claimed the key.
//
//	form         1 byte: plain or encrypted; and the door, for which 2 is added if it is Value
//	content      the rest
//
// The content of an encrypted note is a nonce of 12 bytes, a ciphertext and a tag of 16 bytes (see Keyring.Encrypt). The
// content of a plain note, or of an encrypted one after decryption, is
//
//	fingerprint  its kind, 8 bytes, and its sum, 32 bytes
//	extension    uvarint length and bytes: see extension.go, and record.go, whose compatibility rule applies to notes too
const (
	NotePlain     = 1
	NoteEncrypted = 2
)

// NoteLen is the greatest length of a plain note from EncodeNote.
const NoteLen = 1 + fingerprintLen + len(journaledExtension)

// Note is a note as a value.
type Note struct {
	Fingerprint
	Journaled bool // the run has a journal beside Redis, which decides its outcome
}

// EncodeNote encodes a note. It appends a plain one to room. Only an encrypted one needs the storage key.
func (c *Codec) EncodeNote(room []byte, storageKey string, n Note) []byte {
	if len(c.Keys) == 0 {
		return appendNote(room, c.form(NotePlain), n)
	}
	form := c.form(NoteEncrypted)
	b := appendNote(make([]byte, 0, NoteLen+encryptionOverhead), form, n)
	return c.Keys.Encrypt(NotePurpose, storageKey, []byte{form}, b, 1)
}

// form returns a form of HTTP's notes as that of c's door.
func (c *Codec) form(ofHTTP byte) byte { return ofHTTP + 2*byte(c.Door) }

func appendNote(b []byte, form byte, n Note) []byte {
	b = n.AppendTo(append(b, form))
	if n.Journaled {
		return append(b, journaledExtension...)
	}
	return append(b, noExtension...)
}

// DecodeNote decodes a note. Its errors are those of Decode.
func (c *Codec) DecodeNote(storageKey string, note []byte) (Note, error) {
	plain, encrypted := c.form(NotePlain), c.form(NoteEncrypted)
	if len(note) == 0 || note[0] != plain && note[0] != encrypted {
		return Note{}, errDamaged
	}
	content, err := c.decrypt(note[0] == encrypted, NotePurpose, storageKey, note[:1], note[1:])
	if err != nil {
		return Note{}, err
	}
	if len(content) < fingerprintLen {
		return Note{}, errDamaged
	}
	extension, rest, ok := cutExtension(content[fingerprintLen:])
	if !ok || len(rest) > 0 {
		return Note{}, errDamaged
	}
	return Note{Fingerprint: fingerprintOf(content), Journaled: isJournaled(extension)}, nil
}

// DecodeAnyNote is DecodeNote for a note of any door. It returns the door.
func (c *Codec) DecodeAnyNote(storageKey string, note []byte) (Note, Door, error) {
	of := *c
	of.Door = HTTP
	if len(note) > 0 && note[0] > NoteEncrypted {
		of.Door = Value
	}
	n, err := of.DecodeNote(storageKey, note)
	return n, of.Door, err
}
