package canonical

import (
	"bytes"
	"strconv"
)

// maxExponent is how many digits the exponent of a number may have, without leading zeros.
const maxExponent = 15

// appendDecimal appends the value of a JSON number as an exact decimal: its significant digits, without zeros at either
// end, and a power of ten. 1, 1.0 and 10e-1 are 1e0, 0.25 is 25e-2, and -0 and 0e9 are 0. Nothing is rounded or expanded:
// the result is no longer than the literal and 17 bytes. ok is false if the exponent has more than maxExponent digits.
func appendDecimal(dst, literal []byte) (_ []byte, ok bool) {
	digits, isNegative := bytes.CutPrefix(literal, []byte("-"))
	var power []byte
	if i := bytes.IndexAny(digits, "eE"); i >= 0 {
		digits, power = digits[:i], digits[i+1:]
	}
	whole, fraction, _ := bytes.Cut(digits, []byte("."))
	start := len(dst)
	if isNegative {
		dst = append(dst, '-')
	}
	first := len(dst)
	if whole = bytes.TrimLeft(whole, "0"); len(whole) > 0 {
		dst = append(append(dst, whole...), fraction...)
	} else {
		dst = append(dst, bytes.TrimLeft(fraction, "0")...)
	}
	all := len(dst)
	dst = dst[:first+len(bytes.TrimRight(dst[first:], "0"))]
	if len(dst) == first {
		return append(dst[:start], '0'), true
	}
	exponent, ok := parsePower(power)
	exponent += int64(all - len(dst) - len(fraction))
	return strconv.AppendInt(append(dst, 'e'), exponent, 10), ok
}

// parsePower parses what follows the e of a number: a sign or none, and digits. It is 0 without any.
func parsePower(power []byte) (n int64, ok bool) {
	if len(power) == 0 {
		return 0, true
	}
	digits, isNegative := bytes.CutPrefix(power, []byte("-"))
	digits = bytes.TrimLeft(bytes.TrimPrefix(digits, []byte("+")), "0")
	if len(digits) > maxExponent {
		return 0, false
	}
	for _, c := range digits {
		n = 10*n + int64(c-'0')
	}
	if isNegative {
		n = -n
	}
	return n, true
}
