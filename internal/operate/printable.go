package operate

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// printable returns s with each character that a terminal would act on, or not show, as \uXXXX: control characters,
// line breaks, those that change the direction of the text. A byte that is no UTF-8 becomes U+FFFD. The result for JSON
// is JSON of the same value, because such characters can only be in its strings.
func printable(s string) string {
	var b strings.Builder
	for _, c := range s {
		if unicode.IsPrint(c) {
			b.WriteRune(c)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, c) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}
