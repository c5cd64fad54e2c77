package main

import (
	"errors"
	"net/http"
	"strings"
)

// keyDefects read the key wrongly.
var keyDefects = []defect{{
	name: "key-folded", about: "keys that differ in case are the same key",
	fails: []string{"key/value-case"},
	spoil: changeKey(strings.ToLower),
}, {
	name: "key-truncated", about: "only the first 200 characters of a key count",
	fails: []string{"key/length-distinct"},
	spoil: changeKey(func(key string) string { return key[:min(len(key), 200)] }),
}, {
	name: "key-long-cut", about: "a key of more than 255 characters is accepted, and cut to 255",
	fails: []string{"key/length-distinct"},
	spoil: rawKey(func(field string) (string, error) {
		key, err := parseKey(http.Header{keyHeader: {field}})
		if text := strings.Trim(field, `"`); err != nil && len(text) > 255 {
			return text[:255], nil
		}
		return key, err
	}),
}, {
	name: "key-quotes-kept", about: `k1 and "k1" are different keys`,
	fails: []string{"key/spelling"},
	spoil: rawKey(func(field string) (string, error) {
		key, err := parseKey(http.Header{keyHeader: {field}})
		if strings.HasPrefix(field, `"`) {
			key = `"` + key
		}
		return key, err
	}),
}, {
	name: "key-anything", about: "whatever the header has is the key: empty, malformed, too long", brief: true,
	fails: []string{"key/spelling"},
	spoil: rawKey(func(field string) (string, error) { return field, nil }),
}, {
	name: "key-empty-accepted", about: "the empty string is a key like any other",
	fails: []string{"key/spelling"},
	spoil: rawKey(func(field string) (string, error) {
		if strings.Trim(field, `"`) == "" {
			return "", nil
		}
		return parseKey(http.Header{keyHeader: {field}})
	}),
}, {
	name: "key-empty-unprotected", about: "an empty key is taken for none, and the request runs unprotected",
	fails: []string{"key/spelling"},
	spoil: outside(func(h http.Handler, w http.ResponseWriter, r *http.Request) {
		if field, ok := r.Header[keyHeader]; ok && strings.Trim(field[0], `"`) == "" {
			r.Header.Set(keyHeader, freshKey())
		}
		h.ServeHTTP(w, r)
	}),
}, {
	name: "key-missing-runs", about: "a request without a key runs, although the API requires one",
	fails: []string{"key/missing-runs"},
	spoil: outside(func(h http.Handler, w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Header[keyHeader]; !ok {
			r.Header.Set(keyHeader, freshKey())
		}
		h.ServeHTTP(w, r)
	}),
}, {
	name: "key-missing-403", about: "a request without a key gets 403",
	fails: []string{"key/missing"},
	spoil: inside(func(s *server) {
		s.problem = func(w http.ResponseWriter, status, retryAfter int, title string) {
			if title == errNoKey.Error() {
				status = http.StatusForbidden
			}
			problem(w, status, retryAfter, title)
		}
	}),
}, {
	name: "key-missing-late", about: "a request without a key is refused, but after it has run",
	fails: []string{"key/missing-not-run"},
	spoil: refusedLate(errNoKey),
}, {
	name: "key-odd-500", about: "a malformed key is answered by 500",
	fails: []string{"key/too-long", "key/spelling", "errors/says-retry"},
	spoil: inside(func(s *server) {
		s.problem = func(w http.ResponseWriter, status, retryAfter int, title string) {
			if title == errBadKey.Error() {
				status = http.StatusInternalServerError
			}
			problem(w, status, retryAfter, title)
		}
	}),
}, {
	name: "key-odd-late", about: "a malformed key is refused, but after the request has run",
	fails: []string{"key/too-long", "key/never-unprotected", "key/refused-not-run"},
	spoil: refusedLate(errBadKey),
}, {
	name: "key-first-of-two", about: "of two fields the first is taken",
	fails: []string{"key/spelling"},
	spoil: inside(func(s *server) {
		s.keyOf = func(h http.Header) (string, error) {
			if fields := h[keyHeader]; len(fields) > 1 {
				h = http.Header{keyHeader: fields[:1]}
			}
			return parseKey(h)
		}
	}),
}, {
	name: "key-first-of-list", about: "of a list the first member is taken",
	fails: []string{"key/spelling"},
	spoil: rawKey(func(field string) (string, error) {
		first, _, _ := strings.Cut(field, ",")
		return parseKey(http.Header{keyHeader: {first}})
	}),
}, {
	name: "key-non-ascii", about: "a key of other characters than ASCII is accepted",
	fails: []string{"key/spelling"},
	spoil: rawKey(func(field string) (string, error) {
		return parseKey(http.Header{keyHeader: {strings.Map(func(c rune) rune {
			if c > '~' {
				return 'x'
			}
			return c
		}, field)}})
	}),
}, {
	name: "key-parameters-refused", about: `"k1";p=1 is refused`,
	fails: []string{"key/spelling"},
	spoil: rawKey(func(field string) (string, error) {
		if strings.Contains(field, ";") {
			return "", errBadKey
		}
		return parseKey(http.Header{keyHeader: {field}})
	}),
}, {
	name: "key-escapes-refused", about: `"a\"b" is refused`,
	fails: []string{"key/escaped"},
	spoil: rawKey(func(field string) (string, error) {
		if strings.Contains(field, `\`) {
			return "", errBadKey
		}
		return parseKey(http.Header{keyHeader: {field}})
	}),
}, {
	name: "key-escapes-any", about: `"a\x" is a key`,
	fails: []string{"key/spelling"},
	spoil: rawKey(func(field string) (string, error) {
		return parseKey(http.Header{keyHeader: {strings.ReplaceAll(field, `\x`, "x")}})
	}),
}, {
	name: "key-unterminated", about: `the closing quote may be missing`,
	fails: []string{"key/spelling"},
	spoil: rawKey(func(field string) (string, error) {
		if strings.Count(field, `"`) == 1 {
			field += `"`
		}
		return parseKey(http.Header{keyHeader: {field}})
	}),
}, {
	name: "key-bare-refused", about: "a key without quotes is refused",
	fails: []string{"key/bare"},
	spoil: rawKey(func(field string) (string, error) {
		if !strings.HasPrefix(field, `"`) {
			return "", errBadKey
		}
		return parseKey(http.Header{keyHeader: {field}})
	}),
}, {
	name: "key-quoted-refused", about: "a key in quotes is refused",
	fails: []string{"key/quoted"},
	spoil: rawKey(func(field string) (string, error) {
		if strings.HasPrefix(field, `"`) {
			return "", errBadKey
		}
		return parseKey(http.Header{keyHeader: {field}})
	}),
}, {
	name: "key-36", about: "a key has 36 characters and no quotes; any other is answered by 500", brief: true,
	fails: []string{"key/quoted", "key/length-255", "key/too-long", "key/spelling", "errors/says-retry"},
	spoil: outside(func(h http.Handler, w http.ResponseWriter, r *http.Request) {
		if field := r.Header.Get(keyHeader); len(r.Header[keyHeader]) > 0 && len(field) != 36 {
			problem(w, http.StatusInternalServerError, 0, "invalid key")
			return
		}
		h.ServeHTTP(w, r)
	}),
}, {
	name: "key-on-get", about: "a GET with a key is run, stored and replayed like a POST",
	fails: []string{"key/get"},
	spoil: onceToo(http.MethodGet),
}, {
	name: "key-on-head", about: "a HEAD with a key is run, stored and replayed like a POST",
	fails: []string{"replay/head"},
	spoil: onceToo(http.MethodHead),
}}

// changeKey changes each key that is valid.
func changeKey(change func(string) string) func(*server, http.Handler) http.Handler {
	return inside(func(s *server) {
		s.keyOf = func(h http.Header) (string, error) {
			key, err := parseKey(h)
			return change(key), err
		}
	})
}

// refusedLate makes a payment for each request whose key is refused for that reason.
func refusedLate(reason error) func(*server, http.Handler) http.Handler {
	return inside(func(s *server) {
		s.keyOf = func(h http.Header) (string, error) {
			key, err := parseKey(h)
			if errors.Is(err, reason) {
				_ = s.store.pay(s.epoch, payment{ID: freshKey(), User: h.Get("Authorization")})
			}
			return key, err
		}
	})
}

// rawKey reads the key of a request that has one field.
func rawKey(read func(field string) (string, error)) func(*server, http.Handler) http.Handler {
	return inside(func(s *server) {
		s.keyOf = func(h http.Header) (string, error) {
			if len(h[keyHeader]) != 1 {
				return parseKey(h)
			}
			return read(h[keyHeader][0])
		}
	})
}

// onceToo sends that method the way of a POST.
func onceToo(method string) func(*server, http.Handler) http.Handler {
	return func(s *server, h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, ok := r.Header[keyHeader]; ok && r.Method == method {
				r.Method = http.MethodPost
				s.once(w, r)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
}
