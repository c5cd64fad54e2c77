package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
)

var (
	asACP    = []string{"-profile", "acp"}
	asUCP    = []string{"-profile", "ucp"}
	asStripe = []string{"-profile", "stripe"}
)

// profileDefects keep the rules of an API that is specified elsewhere, but for one.
var profileDefects = []defect{
	{name: "acp", about: "keeps the rules of ACP", flags: asACP, spoil: acp},
	{name: "acp-key-not-echoed", about: "no response repeats the key", fails: "key/echoed", brief: true, flags: asACP,
		spoil: all(acp, answers(func(*http.Request, *response) {}))},
	{name: "acp-refusals-not-echoed", about: "no refusal repeats the key", fails: "key/echoed", flags: asACP,
		spoil: all(acp, answers(func(r *http.Request, a *response) {
			if a.title == "" {
				echo(r, a)
			}
		}))},
	{name: "acp-stored-key-echoed", about: "a replay repeats no key of its own", fails: "key/echoed", flags: asACP,
		spoil: all(acp, answers(func(r *http.Request, a *response) {
			if echo(r, a); isReplay(a) {
				a.Header.Set(keyHeader, rand.Text())
			}
		}))},
	{name: "acp-5xx-stored", about: "a payment whose response is a 5xx stays, and the response is stored", flags: asACP,
		fails: "errors/5xx-not-stored", spoil: all(acp, func(s *server) { s.pay = pay })},
	{name: "acp-number-spelling", about: "1 and 1.0 in the body are two requests", fails: "mismatch/number-spelling", flags: asACP,
		spoil: all(acp, prints(func(_ *http.Request, body []byte) string { return canonical(body, true) }))},
	{name: "acp-null", about: "a member of the body that is null is none", fails: "mismatch/null", flags: asACP,
		spoil: all(acp, prints(func(_ *http.Request, body []byte) string {
			var members map[string]any
			if json.Unmarshal(body, &members) != nil {
				return string(body)
			}
			maps.DeleteFunc(members, func(_ string, value any) bool { return value == nil })
			text, _ := json.Marshal(members)
			return string(text)
		}))},
	{name: "ucp", about: "keeps the rules of UCP", flags: asUCP, spoil: ucp},
	{name: "ucp-json", about: "the JSON values of the body are compared in place of its bytes", fails: "mismatch/bytes", flags: asUCP,
		spoil: all(ucp, jsonValues), brief: true},
	{name: "stripe", about: "keeps the rules of Stripe's API", flags: asStripe, spoil: all(reusedGets(http.StatusBadRequest), answers(echo))},
	{name: "stripe-key-not-echoed", about: "no response repeats the key", fails: "key/echoed", flags: asStripe,
		spoil: reusedGets(http.StatusBadRequest)},
}

// jsonValues has the JSON value of the body alone compared.
var jsonValues = prints(func(_ *http.Request, body []byte) string { return canonical(body, false) })

// acp keeps the rules of ACP: a payment whose response is a 5xx is rolled back.
var acp = all(jsonValues, answers(echo), func(s *server) {
	s.pay = func(r *http.Request, body []byte) (*response, []payment) {
		a, made := pay(r, body)
		if a.Status >= 500 {
			made = nil
		}
		return a, made
	}
})

// ucp has the bytes of the body compared.
var ucp = all(reusedGets(http.StatusConflict), prints(func(_ *http.Request, body []byte) string { return string(body) }))

// reusedGets gives a key of another request that status.
func reusedGets(status int) fault {
	return func(s *server) {
		s.answer = func(r *http.Request, found *record, print string) *response {
			a := answer(r, found, print)
			if found.print != print {
				a = problem(status, 0, a.title)
			}
			return a
		}
	}
}

// echo repeats the key in a response.
func echo(r *http.Request, a *response) {
	if key := r.Header.Get(keyHeader); key != "" {
		a.Header.Set(keyHeader, key)
	}
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
