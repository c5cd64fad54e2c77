package main

import (
	"errors"
	"net/http"
	"strings"
)

// keyDefects read the key wrongly.
var keyDefects = []defect{
	{name: "key-folded", about: "keys that differ in case are the same key", fails: "key/value-case", spoil: changes(strings.ToLower)},
	{name: "key-truncated", about: "only the first 200 characters of a key count", fails: "key/length-distinct",
		spoil: changes(func(key string) string { return key[:min(len(key), 200)] })},
	{name: "key-long-cut", about: "a key of more than 255 characters is accepted, and cut to 255", fails: "key/length-distinct",
		spoil: fields(func(field string) (string, error) {
			if text := strings.Trim(field, `"`); len(text) > 255 {
				return text[:255], nil
			}
			return parseField(field)
		})},
	{name: "key-quotes-kept", about: `k1 and "k1" are different keys`, fails: "key/spelling",
		spoil: fields(func(field string) (string, error) {
			key, err := parseField(field)
			return strings.Repeat(`"`, strings.Count(field, `"`)) + key, err
		})},
	{name: "key-anything", about: "whatever the header has is the key: empty, malformed, too long", fails: "key/spelling", brief: true,
		spoil: fields(func(field string) (string, error) { return field, nil })},
	{name: "key-empty-accepted", about: "the empty string is a key like any other", fails: "key/spelling",
		spoil: fields(func(field string) (string, error) {
			if strings.Trim(field, `"`) == "" {
				return "", nil
			}
			return parseField(field)
		})},
	{name: "key-empty-unprotected", about: "an empty key is taken for none, and the request runs unprotected", fails: "key/spelling",
		spoil: unkeyed(func(r *http.Request) bool {
			return len(r.Header[keyHeader]) > 0 && strings.Trim(r.Header[keyHeader][0], `"`) == ""
		})},
	{name: "key-missing-runs", about: "a request without a key runs, although the API requires one", fails: "key/missing-runs",
		spoil: unkeyed(func(r *http.Request) bool { return len(r.Header[keyHeader]) == 0 })},
	{name: "key-missing-403", about: "a request without a key gets 403", fails: "key/missing",
		spoil: status(http.StatusBadRequest, errNoKey.Error(), http.StatusForbidden)},
	{name: "key-missing-late", about: "a request without a key is refused, but after it has run", fails: "key/missing-not-run",
		spoil: refusesLate(errNoKey)},
	{name: "key-odd-500", about: "a malformed key is answered by 500", fails: "key/too-long key/spelling errors/says-retry",
		spoil: status(http.StatusBadRequest, errBadKey.Error(), http.StatusInternalServerError)},
	{name: "key-odd-late", about: "a malformed key is refused, but after the request has run",
		fails: "key/too-long key/never-unprotected key/refused-not-run", spoil: refusesLate(errBadKey)},
	{name: "key-first-of-two", about: "of two fields the first is taken", fails: "key/spelling",
		spoil: requests(func(r *http.Request) { r.Header[keyHeader] = r.Header[keyHeader][:min(1, len(r.Header[keyHeader]))] })},
	{name: "key-first-of-list", about: "of a list the first member is taken", fails: "key/spelling",
		spoil: fields(func(field string) (string, error) {
			first, _, _ := strings.Cut(field, ",")
			return parseField(first)
		})},
	{name: "key-non-ascii", about: "a key of other characters than ASCII is accepted", fails: "key/spelling",
		spoil: fields(func(field string) (string, error) { return parseField(strings.ReplaceAll(field, "é", "x")) })},
	{name: "key-parameters-refused", about: `"k1";p=1 is refused`, fails: "key/spelling", spoil: refuses(hasMark(";"))},
	{name: "key-escapes-refused", about: `"a\"b" is refused`, fails: "key/escaped", spoil: refuses(hasMark(`\`))},
	{name: "key-escapes-any", about: `"a\x" is a key`, fails: "key/spelling",
		spoil: fields(func(field string) (string, error) { return parseField(strings.ReplaceAll(field, `\x`, "x")) })},
	{name: "key-unterminated", about: `the closing quote may be missing`, fails: "key/spelling",
		spoil: fields(func(field string) (string, error) {
			if strings.Count(field, `"`) == 1 {
				field += `"`
			}
			return parseField(field)
		})},
	{name: "key-bare-refused", about: "a key without quotes is refused", fails: "key/bare",
		spoil: refuses(func(field string) bool { return !strings.HasPrefix(field, `"`) })},
	{name: "key-quoted-refused", about: "a key in quotes is refused", fails: "key/quoted", spoil: refuses(hasMark(`"`))},
	{name: "key-36", about: "a key has 36 characters and no quotes; any other is answered by 500", brief: true,
		fails: "key/quoted key/length-255 key/too-long key/spelling errors/says-retry",
		spoil: all(refuses(func(field string) bool { return len(field) != 36 }),
			status(http.StatusBadRequest, errBadKey.Error(), http.StatusInternalServerError))},
	{name: "key-on-get", about: "a GET with a key is run, stored and replayed like a POST", fails: "key/get",
		spoil: onceToo(http.MethodGet)},
	{name: "key-on-head", about: "a HEAD with a key is run, stored and replayed like a POST", fails: "replay/head",
		spoil: onceToo(http.MethodHead)},
}

// changes changes each key that is valid.
func changes(change func(string) string) fault {
	return func(s *server) {
		s.keyOf = func(h http.Header) (string, error) {
			key, err := parseKey(h)
			return change(key), err
		}
	}
}

// refusesLate makes a payment for each request whose key is refused for that reason.
func refusesLate(reason error) fault {
	return func(s *server) {
		s.keyOf = func(h http.Header) (string, error) {
			key, err := parseKey(h)
			if errors.Is(err, reason) {
				_ = s.store.pay([]payment{{User: h.Get("Authorization")}})
			}
			return key, err
		}
	}
}

// onceToo sends that method the way of a POST.
func onceToo(method string) fault {
	return requests(func(r *http.Request) {
		if len(r.Header[keyHeader]) > 0 && r.Method == method {
			r.Method = http.MethodPost
		}
	})
}
