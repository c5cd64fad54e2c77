package main

// keys is a caller's sequence of keys that nobody has used before. They look like UUIDs: fiber wants 36 characters.
//
// Keys are cut from texts of many, so that the allocations of a measurement are not those of the keys.
type keys struct {
	caller, next int
	text         string
}

const (
	keyForm   = "00000000-0000-4000-8000-000000000000"
	keysAtOne = 64
)

func (k *keys) fresh() string {
	if k.text == "" {
		text := make([]byte, 0, keysAtOne*len(keyForm))
		for range keysAtOne {
			text = append(text, keyForm...)
			putHex(text[len(text)-len(keyForm):][:8], k.caller)
			putHex(text[len(text)-12:], k.next)
			k.next++
		}
		k.text = string(text)
	}
	key := k.text[:len(keyForm)]
	k.text = k.text[len(keyForm):]
	return key
}

// putHex fills b with the last digits of n.
func putHex(b []byte, n int) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = "0123456789abcdef"[n&0xf]
		n >>= 4
	}
}
