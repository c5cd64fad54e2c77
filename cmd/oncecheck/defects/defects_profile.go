package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
)

// profileDefects keep the rules of an API that is specified elsewhere, but for one.
var profileDefects = []defect{{
	name: "acp", about: "keeps the rules of ACP", profile: "acp",
	spoil: acp,
}, {
	name: "acp-key-not-echoed", about: "no response repeats the key", profile: "acp", brief: true,
	fails: []string{"key/echoed"},
	spoil: inside(asACP),
}, {
	name: "acp-refusals-not-echoed", about: "no refusal repeats the key", profile: "acp",
	fails: []string{"key/echoed"},
	spoil: func(s *server, h http.Handler) http.Handler {
		h = acp(s, h)
		s.problem = func(w http.ResponseWriter, status, retryAfter int, title string) {
			w.Header().Del(keyHeader)
			problem(w, status, retryAfter, title)
		}
		return h
	},
}, {
	name: "acp-stored-key-echoed", about: "a replay repeats no key of its own", profile: "acp",
	fails: []string{"key/echoed"},
	spoil: func(s *server, h http.Handler) http.Handler {
		h = acp(s, h)
		s.send = func(w http.ResponseWriter, answer *response) {
			if answer.Header.Get("Idempotent-Replayed") != "" {
				w.Header().Set(keyHeader, freshKey())
			}
			send(w, answer)
		}
		return h
	},
}, {
	name: "acp-5xx-stored", about: "a payment whose response is a 5xx stays, and the response is stored", profile: "acp",
	fails: []string{"errors/5xx-not-stored"},
	spoil: func(s *server, h http.Handler) http.Handler {
		h = acp(s, h)
		s.pay = pay
		return h
	},
}, {
	name: "acp-number-spelling", about: "1 and 1.0 in the body are two requests", profile: "acp",
	fails: []string{"mismatch/number-spelling"},
	spoil: acpPrint(func(body []byte) string { return canonical(body, true) }),
}, {
	name: "acp-null", about: "a member of the body that is null is none", profile: "acp",
	fails: []string{"mismatch/null"},
	spoil: acpPrint(func(body []byte) string {
		var members map[string]any
		if json.Unmarshal(body, &members) != nil {
			return string(body)
		}
		maps.DeleteFunc(members, func(_ string, value any) bool { return value == nil })
		text, _ := json.Marshal(members)
		return string(text)
	}),
}, {
	name: "ucp", about: "keeps the rules of UCP", profile: "ucp",
	spoil: inside(asUCP),
}, {
	name: "ucp-json", about: "the JSON values of the body are compared in place of its bytes", profile: "ucp", brief: true,
	fails: []string{"mismatch/bytes"},
	spoil: inside(func(s *server) {
		asUCP(s)
		s.printOf = func(_ *http.Request, body []byte) string { return canonical(body, false) }
	}),
}, {
	name: "stripe", about: "keeps the rules of Stripe's API", profile: "stripe",
	spoil: stripe,
}, {
	name: "stripe-key-not-echoed", about: "no response repeats the key", profile: "stripe",
	fails: []string{"key/echoed"},
	spoil: inside(reusedGets(http.StatusBadRequest)),
}}

// acp spoils nothing: the server keeps the rules of ACP. The other profiles have the like.
func acp(s *server, h http.Handler) http.Handler {
	asACP(s)
	return echo(h)
}

// asACP has all rules of ACP but the repetition of the key: the JSON value of the body alone is compared, and a payment whose
// response is a 5xx is rolled back.
func asACP(s *server) {
	s.printOf = func(_ *http.Request, body []byte) string { return canonical(body, false) }
	s.pay = func(r *http.Request, body []byte) (*response, []payment) {
		answer, made := pay(r, body)
		if answer.Status >= 500 {
			made = nil
		}
		return answer, made
	}
}

// acpPrint replaces what two requests are compared by.
func acpPrint(print func(body []byte) string) func(*server, http.Handler) http.Handler {
	return func(s *server, h http.Handler) http.Handler {
		h = acp(s, h)
		s.printOf = func(_ *http.Request, body []byte) string { return print(body) }
		return h
	}
}

// asUCP has the bytes of the body compared.
func asUCP(s *server) {
	s.printOf = func(_ *http.Request, body []byte) string { return fmt.Sprintf("%x", sha256.Sum256(body)) }
	reusedGets(http.StatusConflict)(s)
}

func stripe(s *server, h http.Handler) http.Handler {
	reusedGets(http.StatusBadRequest)(s)
	return echo(h)
}

// reusedGets gives a key of another request that status.
func reusedGets(status int) func(*server) {
	return func(s *server) {
		s.answer = func(w http.ResponseWriter, r *http.Request, found *record, print string) {
			if found.print != print {
				s.problem(w, status, 0, "the key belongs to another request")
				return
			}
			s.answerFor(w, r, found, print)
		}
	}
}

// echo repeats the key in each response.
func echo(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if key := r.Header.Get(keyHeader); key != "" {
			w.Header().Set(keyHeader, key)
		}
		h.ServeHTTP(w, r)
	})
}

// canonical returns the text that equal JSON values have in common, with numbers as they are spelled if that counts. A body that is no
// JSON stays as it is.
func canonical(body []byte, isSpelled bool) string {
	decoder := json.NewDecoder(bytes.NewReader(body))
	if isSpelled {
		decoder.UseNumber()
	}
	var value any
	if decoder.Decode(&value) != nil {
		return string(body)
	}
	text, _ := json.Marshal(value)
	return string(text)
}
