package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
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
	name: "ucp", about: "keeps the rules of UCP", profile: "ucp",
	spoil: inside(asUCP),
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
	s.printOf = func(_ *http.Request, body []byte) string { return canonical(body) }
	s.pay = func(r *http.Request, body []byte) (*response, []payment) {
		answer, made := pay(r, body)
		if answer.Status >= 500 {
			made = nil
		}
		return answer, made
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

// canonical returns the text that equal JSON values have in common. A body that is no JSON stays as it is.
func canonical(body []byte) string {
	var value any
	if json.Unmarshal(body, &value) != nil {
		return string(body)
	}
	text, _ := json.Marshal(value)
	return string(text)
}
