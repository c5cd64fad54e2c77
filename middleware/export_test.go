package middleware

// DecodeRecord reads a stored record and returns it encoded again, for the fuzz test.
func DecodeRecord(storageKey string, b []byte) (again []byte, ok bool) {
	r, err := decodeRecord(storageKey, b)
	if err != nil {
		return nil, false
	}
	return r.encode(storageKey), true
}

// SealRecord puts the right checksum into b, so that the fuzz test reaches what is behind it.
func SealRecord(storageKey string, b []byte) { seal(storageKey, b) }

// EncodeRecord returns a record with one of everything.
func EncodeRecord(storageKey string, body []byte) []byte {
	return record{
		fingerprint: fingerprint{fingerprintDefault, 0xf1},
		status:      201,
		header: []change{
			{opSet, "Location", []string{"/payments/1"}}, {opSet, "Content-Type", nil},
			{opAdd, "Vary", []string{"Accept", "Origin"}}, {opDelete, "X-Powered-By", nil},
		},
		trailer: []change{{opSet, "X-Checksum", []string{"abc"}}},
		body:    body,
	}.encode(storageKey)
}
