package ask

import (
	"crypto/rand"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Operation is one intent of a customer: one payment. Its repetitions have the same values.
type Operation struct {
	N    int64  // {{n}}: differs from operation to operation
	Key  string // {{key}}: the idempotency key, a random UUID
	UUID string // {{uuid}}: another random UUID
}

// Expand replaces {{n}}, {{key}} and {{uuid}}.
func (o Operation) Expand(template string) string {
	return strings.NewReplacer("{{n}}", strconv.FormatInt(o.N, 10), "{{key}}", o.Key, "{{uuid}}", o.UUID).Replace(template)
}

// placeholder matches what looks like one. JSON may have braces of its own.
var placeholder = regexp.MustCompile(`\{\{([A-Za-z_ ]+)\}\}`)

// CheckTemplate returns an error if the template has a placeholder that does not exist.
func CheckTemplate(template string) error {
	for _, found := range placeholder.FindAllStringSubmatch(template, -1) {
		if !slices.Contains([]string{"n", "key", "uuid"}, found[1]) {
			return fmt.Errorf("%s is no placeholder: there are {{n}}, {{key}} and {{uuid}}", found[0])
		}
	}
	return nil
}

// UUID returns a random UUID of version 4. It does not depend on the seed of a run: keys are never used again.
func UUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
