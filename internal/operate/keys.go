package operate

import (
	"encoding/base64"
	"encoding/hex"
	"strings"

	"github.com/onceguard/onceguard/middleware"
)

// readingFlags decide which records can be read.
type readingFlags struct {
	keysFile  string
	plaintext bool
}

// options returns the middleware's options that the flags give.
func (r *readingFlags) options() (opts []middleware.Option, err error) {
	if r.plaintext && r.keysFile == "" {
		return nil, usagef("-plaintext-reads means nothing without -keys-file")
	}
	if r.keysFile != "" {
		keys, err := readKeys(r.keysFile)
		if err != nil {
			return nil, err
		}
		opts = append(opts, middleware.WithEncryption(keys...))
	}
	if r.plaintext {
		opts = append(opts, middleware.WithPlaintextReads())
	}
	return opts, nil
}

const (
	keySize     = 32      // of a key of middleware.WithEncryption, in bytes
	maxKeysFile = 1 << 20 // bytes
)

// readKeys reads a file of keys.
func readKeys(name string) ([][]byte, error) {
	text, err := readFile("keys-file", name, nil, maxKeysFile)
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxKeysFile:
		return nil, usagef("-keys-file: more than %d bytes are too many", maxKeysFile)
	}
	return parseKeys(string(text))
}

// parseKeys parses the keys, one on each line. Its errors never contain any part of a line.
func parseKeys(text string) (keys [][]byte, err error) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key := parseKey(line)
		if key == nil {
			return nil, usagef("-keys-file: line %d is not %d bytes in base64 or hexadecimal digits", number, keySize)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, usagef("-keys-file: it has no key")
	}
	return keys, nil
}

// parseKey parses one key, and returns nil if line is not one. The two forms differ in length.
func parseKey(line string) []byte {
	if key, err := hex.DecodeString(line); err == nil && len(key) == keySize {
		return key
	}
	line = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(line, "="))
	if key, err := base64.RawStdEncoding.Strict().DecodeString(line); err == nil && len(key) == keySize {
		return key
	}
	return nil
}
