package middleware

// A note says what a claim is for:
//
//	form         1 byte: plain or sealed
//	content      the rest
//
// The content of a sealed note is a nonce of 12 bytes, a ciphertext and a tag of 16 bytes (see keyring.seal). In a plain
// note, and below the seal, the content is
//
//	fingerprint  its kind, 8 bytes, and its sum, 32 bytes
//	extension    uvarint length and bytes: see record.go, whose compatibility rule applies to notes too
const (
	notePlain  = 1
	noteSealed = 2
)

// noteLen is the length of a plain note that is written.
const noteLen = 1 + fingerprintLen + len(noExtension)

// encodeNote appends a plain note to room. A sealed one is made in memory of its own; only sealing needs the key.
func (c *codec) encodeNote(room []byte, storageKey string, f fingerprint) []byte {
	if len(c.keys) == 0 {
		return appendNote(room, notePlain, f)
	}
	b := appendNote(make([]byte, 0, noteLen+sealOverhead), noteSealed, f)
	return c.keys.seal(notePurpose, storageKey, []byte{noteSealed}, b, 1)
}

func appendNote(b []byte, form byte, f fingerprint) []byte {
	return append(f.appendTo(append(b, form)), noExtension...)
}

func (c *codec) decodeNote(storageKey string, note []byte) (fingerprint, error) {
	if len(note) == 0 || note[0] != notePlain && note[0] != noteSealed {
		return fingerprint{}, errDamaged
	}
	content, err := c.unseal(note[0] == noteSealed, notePurpose, storageKey, note[:1], note[1:])
	if err != nil {
		return fingerprint{}, err
	}
	d := decoder{b: content}
	f := d.fingerprint()
	d.skipExtension()
	if d.failed || len(d.rest()) > 0 {
		return fingerprint{}, errDamaged
	}
	return f, nil
}
