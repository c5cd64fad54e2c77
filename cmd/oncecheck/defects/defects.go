package main

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A defect makes a right server wrong in one way.
type defect struct {
	name, about string
	fails       string   // exactly the checks of oncecheck that do not hold, in its order
	spoil       fault    // nil: none
	flags       []string // of oncecheck, beside those with which it asks everything
	brief       bool     // asked in short test runs, too
}

// A fault replaces steps of an instance.
type fault func(s *server)

var (
	hangs = []string{"-timeout", "3s"}   // some requests get no answer
	locks = []string{"-patience", "10s"} // some keys are never answered
)

// defects are all that there are. The first is none. The tests of refusals follow, because they take longest.
var defects = slices.Concat([]defect{
	{name: "none", about: "keeps every promise; a duplicate of a running request gets 409"},
	{name: "none-wait", about: "keeps every promise; a duplicate of a running request waits for its response", spoil: waits},
}, refusalDefects, keyDefects, onceDefects, replayDefects, storeDefects, profileDefects)

func find(name string) (defect, bool) {
	i := slices.IndexFunc(defects, func(d defect) bool { return d.name == name })
	if i < 0 {
		return defect{}, false
	}
	return defects[i], true
}

// gap is how long the moment lasts in which a race can be lost. It is long enough for a busy machine to lose it.
const gap = 100 * time.Millisecond

func waits(s *server) { s.wait = true }

// all is several faults in one.
func all(faults ...fault) fault {
	return func(s *server) {
		for _, spoil := range faults {
			spoil(s)
		}
	}
}

// requests changes each request before it is read.
func requests(change func(*http.Request)) fault { return func(s *server) { s.in = change } }

// answers changes each answer before it is sent.
func answers(change func(*http.Request, *response)) fault { return func(s *server) { s.out = change } }

// replays changes each replay.
func replays(change func(*response)) fault {
	return answers(func(_ *http.Request, a *response) {
		if isReplay(a) {
			change(a)
		}
	})
}

func isReplay(a *response) bool { return a.Header.Get("Idempotent-Replayed") != "" }

// problems changes each problem document.
func problems(change func(*response)) fault {
	return answers(func(_ *http.Request, a *response) {
		if a.title != "" {
			change(a)
		}
	})
}

// status gives the problem documents of one status, and of one title unless that is empty, another status.
func status(of int, title string, with int) fault {
	return problems(func(a *response) {
		if a.Status == of && (title == "" || a.title == title) {
			*a = *problem(with, 0, a.title)
		}
	})
}

// scopes changes what keys are told apart by. The method and the path are those of the request.
func scopes(change func(user, method, path, key string) string) fault {
	return func(s *server) { s.scopeOf = change }
}

// prints changes what two requests are compared by.
func prints(change func(r *http.Request, body []byte) string) fault {
	return func(s *server) { s.printOf = change }
}

// fields reads the key of a request that has one field.
func fields(read func(field string) (string, error)) fault {
	return func(s *server) {
		s.keyOf = func(h http.Header) (string, error) {
			if len(h[keyHeader]) != 1 {
				return parseKey(h)
			}
			return read(h[keyHeader][0])
		}
	}
}

// refuses refuses such a field. Others are keys as ever.
func refuses(which func(field string) bool) fault {
	return fields(func(field string) (string, error) {
		if which(field) {
			return "", errBadKey
		}
		return parseField(field)
	})
}

// unkeyed gives such requests a key that no other has.
func unkeyed(which func(*http.Request) bool) fault {
	return requests(func(r *http.Request) {
		if which(r) {
			r.Header.Set(keyHeader, rand.Text())
		}
	})
}

// hasKey reports whether the request has a valid key.
func hasKey(r *http.Request) bool {
	_, err := parseKey(r.Header)
	return err == nil
}

// running answers the duplicates of a running request.
func running(answers func(r *http.Request, found *record) *response) fault {
	return func(s *server) {
		s.answer = func(r *http.Request, found *record, print string) *response {
			if found.print == print && found.response == nil {
				return answers(r, found)
			}
			return answer(r, found, print)
		}
	}
}

// committed replaces how a request ends.
func committed(commit func(p process, c *claim, r *http.Request, a *response, made []payment) error) fault {
	return func(s *server) {
		s.commit = func(c *claim, r *http.Request, a *response, made []payment) error {
			return commit(s.store, c, r, a, made)
		}
	}
}

// unstored makes the payment of such a request, and does not store its response. Its key is free again, or locked for ever.
func unstored(frees bool, which func(r *http.Request, a *response) bool) fault {
	return committed(func(p process, c *claim, r *http.Request, a *response, made []payment) error {
		if !which(r, a) {
			return p.commit(c, a, made)
		}
		if frees {
			defer p.free(c)
		}
		return p.pay(made)
	})
}

// ends makes the payment first, and then ends the claim in another way.
func ends(end func(p process, c *claim, r *http.Request, a *response)) fault {
	return committed(func(p process, c *claim, r *http.Request, a *response, made []payment) error {
		err := p.pay(made)
		if err == nil {
			end(p, c, r, a)
		}
		return err
	})
}

// claimed replaces how a request takes its key.
func claimed(take func(p process, scope, print string) (*claim, *record, error)) fault {
	return func(s *server) {
		s.claim = func(scope, print string) (*claim, *record, error) { return take(s.store, scope, print) }
	}
}

// hasMark reports whether the text contains the mark.
func hasMark(mark string) func(string) bool {
	return func(text string) bool { return strings.Contains(text, mark) }
}
