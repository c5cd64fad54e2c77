package main

import (
	"net/http"
	"slices"
)

// A defect makes a right server wrong in one way.
type defect struct {
	name, about string

	// spoil gets an instance and the handler that serves it, and returns the handler to use.
	spoil func(s *server, h http.Handler) http.Handler

	profile string // the API whose rules the server keeps otherwise, see -profile; empty: the draft's

	wait  bool     // a duplicate of a running request waits for its response
	fails []string // exactly the checks of oncecheck that do not hold, in its order
	brief bool     // asked in short test runs, too
	hangs bool     // some requests get no answer: -timeout is short
	locks bool     // some keys are never answered: -patience is short
}

// defects are all that there are. The first is none. The tests of refusals follow, because they take longest.
var defects = slices.Concat([]defect{{
	name: "none", about: "keeps every promise; a duplicate of a running request gets 409",
	spoil: inside(func(*server) {}),
}, {
	name: "none-wait", about: "keeps every promise; a duplicate of a running request waits for its response", wait: true,
	spoil: inside(func(*server) {}),
}}, refusalDefects, keyDefects, onceDefects, replayDefects, storeDefects, profileDefects)

func find(name string) (defect, bool) {
	i := slices.IndexFunc(defects, func(d defect) bool { return d.name == name })
	if i < 0 {
		return defect{}, false
	}
	return defects[i], true
}

// inside replaces steps of the instance.
func inside(replace func(s *server)) func(*server, http.Handler) http.Handler {
	return func(s *server, h http.Handler) http.Handler {
		replace(s)
		return h
	}
}

// outside wraps the handler that serves the instance.
func outside(wrap func(h http.Handler, w http.ResponseWriter, r *http.Request)) func(*server, http.Handler) http.Handler {
	return func(_ *server, h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { wrap(h, w, r) })
	}
}

// replays changes each replay before it is sent. The header is a copy, the body is not.
func replays(change func(answer *response)) func(*server, http.Handler) http.Handler {
	return inside(func(s *server) {
		s.send = func(w http.ResponseWriter, answer *response) {
			if answer.Header.Get("Idempotent-Replayed") != "" {
				change(answer)
			}
			send(w, answer)
		}
	})
}

// problems changes each problem document before it is sent.
func problems(change func(answer *response)) func(*server, http.Handler) http.Handler {
	return inside(func(s *server) {
		s.problem = func(w http.ResponseWriter, status, retryAfter int, title string) {
			answer := newProblem(status, retryAfter, title)
			change(answer)
			send(w, answer)
		}
	})
}
