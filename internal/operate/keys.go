package operate

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
)

const (
	keySize     = 32      // of a key of middleware.WithEncryption, in bytes
	maxKeysFile = 1 << 20 // bytes
)

// readKeys reads a file of keys.
func readKeys(name string) ([][]byte, error) {
	text, err := readFile("keys-file", name, nil, maxKeysFile)
	if err != nil {
		return nil, err
	}
	return parseKeys(string(text))
}

// parseKeys parses the keys, with white space between them. Its errors never contain any part of one.
func parseKeys(text string) (keys [][]byte, err error) {
	for _, word := range strings.Fields(text) {
		key := parseKey(word)
		if key == nil {
			return nil, UsageError("-keys-file: key %d is not %d bytes in base64 or hexadecimal digits", len(keys)+1, keySize)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, UsageError("-keys-file: it has no key")
	}
	return keys, nil
}

// parseKey parses one key, and returns nil if word is not one. The two forms differ in length.
func parseKey(word string) []byte {
	key, err := hex.DecodeString(word)
	if err != nil {
		word = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(word, "="))
		key, err = base64.RawStdEncoding.Strict().DecodeString(word)
	}
	if err != nil || len(key) != keySize {
		return nil
	}
	return key
}
