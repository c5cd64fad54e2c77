package main

import (
	"encoding/json"
	"testing"
)

func TestKeys(t *testing.T) {
	met := map[string]bool{}
	for _, k := range []*keys{{}, {caller: 1}, {caller: 0xabcdef}, {next: 1 << 24}} {
		for range 3 * keysAtOne {
			key := k.fresh()
			if len(key) != len(keyForm) || met[key] {
				t.Fatalf("the key %q has a wrong length, or was there before", key)
			}
			met[key] = true
		}
	}
	if !met["00abcdef-0000-4000-8000-00000000007f"] {
		t.Error("the 128th key of caller 0xabcdef is missing")
	}
}

func TestJSONOf(t *testing.T) {
	for _, n := range []int{0, 10, 11, 12, bodySize} {
		body := jsonOf(n)
		if !json.Valid(body) || n > 10 && len(body) != n {
			t.Errorf("jsonOf(%d) = %.20q of %d bytes", n, body, len(body))
		}
	}
}
