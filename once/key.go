package once

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/onceguard/onceguard/internal/canonical"
	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/run"
)

// Key names what is to happen once. Two calls of [Do] are one if Operation, Scope and ID are the same, in Lockers with
// the same namespace. None of these three may be empty ([ErrInvalidKey]). They are hashed together, each with its
// length, so they may have any content and length. No key of package keyfunc equals one.
type Key struct {
	// Operation is what is done, such as "charge": a constant of the program.
	Operation string
	// Scope is whose ID it is: the stable id of a user or tenant, the name of a queue. It keeps one user from getting
	// another's result. If all IDs come from one place, use [Anyone].
	Scope string
	// ID is the intent, and the same in every try: the message's id, the order's number. An id that is made anew for
	// each try, such as that of a JSON-RPC request, makes each try another intent.
	ID string

	// Input is what the function acts on. If another call has the same Key with another Input, it gets [ErrReused]. It
	// is compared by its JSON (encoding/json), of which the SHA-256 is stored. If Input is nil in either call, nothing
	// is compared.
	//
	// The JSON must be the same in every try. That of structs, slices, strings, numbers and maps is: encoding/json
	// sorts the keys of a map. A time of the try, a random id or a pointer's address must not be in it. A field that a
	// new version of the program adds changes it too, unless the field has omitempty and is empty. Bytes that are not
	// UTF-8 count only in a []byte, not in a string. Fields that are not exported do not count: a protobuf message of the
	// Opaque API has its values in such fields.
	Input any
}

// Anyone is the [Key].Scope of IDs that all come from one place. It begins with NUL, so it differs from any id that a
// person can type.
const Anyone = "\x00anyone"

// keyPrefix begins every encoded Key. Package keyfunc makes no key that begins with it.
const keyPrefix = "\x00once "

// inputKind is the kind of an Input's fingerprint. What is hashed under it never changes: see middleware's rules.
var inputKind = record.Kind([]byte("onceinp1"))

// read checks the Key, and sets the key and the fingerprint of req.
func (k *Key) read(req *run.Request) error {
	for _, part := range []struct{ name, content string }{{"Operation", k.Operation}, {"Scope", k.Scope}, {"ID", k.ID}} {
		if part.content == "" {
			return fmt.Errorf("its %s is empty", part.name)
		}
	}
	var fingerprint record.Fingerprint // of the zero Kind: nothing is compared
	if k.Input != nil {
		encoded, err := json.Marshal(k.Input)
		if err != nil {
			return fmt.Errorf("its Input has no JSON: %w", codecError(reflect.TypeOf(k.Input), err))
		}
		fingerprint = record.Fingerprint{Kind: inputKind, Sum: sha256.Sum256(encoded)}
	}
	req.Key, req.Fingerprints = k.encode(), []record.Fingerprint{fingerprint}
	return nil
}

// encode returns the key of the lock. Different keys have different encodings.
func (k *Key) encode() string {
	b := []byte(keyPrefix)
	for _, part := range []string{k.Operation, k.Scope, k.ID} {
		b = canonical.AppendPart(b, part)
	}
	return string(b)
}
