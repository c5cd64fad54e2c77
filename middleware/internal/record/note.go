package record

// A note is what a claim carries for other requests: the fingerprint of the request that claimed the key.
//
//	form         1 byte: plain or sealed
//	content      the rest
//
// The content of a sealed note is a nonce of 12 bytes, a ciphertext and a tag of 16 bytes (see Keyring.Seal). In a plain
// note, and below the seal, the content is
//
//	fingerprint  its kind, 8 bytes, and its sum, 32 bytes
//	extension    uvarint length and bytes: see record.go, whose compatibility rule applies to notes too
const (
	NotePlain  = 1
	NoteSealed = 2
)

// NoteLen is the length of a plain note from EncodeNote.
const NoteLen = 1 + fingerprintLen + len(noExtension)

// EncodeNote returns the note of a fingerprint. A plain note is appended to room. Only a sealed one needs the storage
// key.
func (c *Codec) EncodeNote(room []byte, storageKey string, f Fingerprint) []byte {
	if len(c.Keys) == 0 {
		return appendNote(room, NotePlain, f)
	}
	b := appendNote(make([]byte, 0, NoteLen+sealOverhead), NoteSealed, f)
	return c.Keys.Seal(NotePurpose, storageKey, []byte{NoteSealed}, b, 1)
}

func appendNote(b []byte, form byte, f Fingerprint) []byte {
	return append(f.AppendTo(append(b, form)), noExtension...)
}

// DecodeNote returns the fingerprint in a note. Its errors are those of Decode.
func (c *Codec) DecodeNote(storageKey string, note []byte) (Fingerprint, error) {
	if len(note) == 0 || note[0] != NotePlain && note[0] != NoteSealed {
		return Fingerprint{}, errDamaged
	}
	content, err := c.unseal(note[0] == NoteSealed, NotePurpose, storageKey, note[:1], note[1:])
	if err != nil {
		return Fingerprint{}, err
	}
	d := decoder{b: content}
	f := d.fingerprint()
	d.skipExtension()
	if d.failed || len(d.rest()) > 0 {
		return Fingerprint{}, errDamaged
	}
	return f, nil
}
