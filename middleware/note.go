package middleware

// A claim's note says what the claim is for: a byte that tells its form, and the fingerprint, which in a sealed note is
// between a nonce and a tag (see keyring.seal).
const (
	notePlain  = 1
	noteSealed = 2
)

// encodeNote appends a plain note to room. A sealed one has its own; only that needs the key.
func (c *codec) encodeNote(room []byte, storageKey string, f fingerprint) []byte {
	if len(c.keys) == 0 {
		return append(append(room, notePlain), f[:]...)
	}
	b := append(make([]byte, 0, 1+len(f)+sealOverhead), noteSealed)
	return c.keys.seal(notePurpose, storageKey, []byte{noteSealed}, append(b, f[:]...), 1)
}

func (c *codec) decodeNote(storageKey string, note []byte) (f fingerprint, err error) {
	if len(note) == 0 || note[0] != notePlain && note[0] != noteSealed {
		return f, errDamaged
	}
	content, err := c.unseal(note[0] == noteSealed, notePurpose, storageKey, note[:1], note[1:])
	if err != nil {
		return f, err
	}
	if len(content) != len(f) {
		return f, errDamaged
	}
	copy(f[:], content)
	return f, nil
}
