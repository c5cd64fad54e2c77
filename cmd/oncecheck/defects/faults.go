package main

import (
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"
)

// A defect makes a right server wrong in one way.
type defect struct {
	name string
	// Exactly the checks of oncecheck that do not hold, in its order.
	fails string
	spoil fault // nil: none
	// Flags of oncecheck, beside those with which it asks everything.
	flags []string
}

// A fault replaces steps of an instance.
type fault func(s *server)

func d(name, fails string, spoil fault, flags ...string) defect {
	return defect{name, fails, spoil, flags}
}

const (
	hangs = "-timeout=3s"   // some requests get no answer
	locks = "-patience=10s" // some keys are never answered
)

// defects are all that there are. The first is none. The tests of refusals follow, because they take longest.
var defects = slices.Concat([]defect{
	// A duplicate of a running request gets 409.
	d("none", "", nil),
	d("none-wait", "", waits), // it waits for the response
}, refusalDefects, keyDefects, onceDefects, replayDefects, mismatchDefects, storeDefects, profileDefects)

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
func requests(change func(*call)) fault { return func(s *server) { s.in = change } }

// replies changes each reply before it is sent.
func replies(change func(*call)) fault { return func(s *server) { s.out = change } }

// replays changes each replay.
func replays(change func(*response)) fault {
	return replies(func(c *call) {
		if isReplay(c.reply) {
			change(c.reply)
		}
	})
}

func isReplay(a *response) bool { return a.Header.Get("Idempotent-Replayed") != "" }

// empties changes the replays of empty responses.
func empties(change func(*response)) fault {
	return replays(func(a *response) {
		if len(a.Body) == 0 {
			change(a)
		}
	})
}

// drops drops a header of each replay.
func drops(name string) fault { return replays(func(a *response) { a.Header.Del(name) }) }

// problems changes each problem document.
func problems(change func(*response)) fault {
	return replies(func(c *call) {
		if c.reply.title != "" {
			change(c.reply)
		}
	})
}

// status gives the problem documents of one status, and of one title unless that is empty, another status.
func status(of int, title string, with int) fault {
	return problems(func(a *response) {
		if a.Status == of && (title == "" || a.title == title) {
			*a = *problem(with, a.title)
			a.Header.Del("Retry-After")
		}
	})
}

// scopes changes what keys are told apart by.
func scopes(change func(*call) string) fault { return func(s *server) { s.scopeOf = change } }

// prints changes what two requests are compared by.
func prints(change func(*call) string) fault { return func(s *server) { s.printOf = change } }

// keys changes each key that is valid.
func keys(change func(string) string) fault {
	return func(s *server) {
		s.keyOf = func(c *call) (string, error) {
			key, err := parseKey(c)
			return change(key), err
		}
	}
}

// fields reads the key of a request that has one field.
func fields(read func(field string) (string, error)) fault {
	return func(s *server) {
		s.keyOf = func(c *call) (string, error) {
			if len(c.Header[keyHeader]) != 1 {
				return parseKey(c)
			}
			return read(c.Header[keyHeader][0])
		}
	}
}

// reads reads the key of another field in place of one.
func reads(change func(field string) string) fault {
	return fields(func(field string) (string, error) { return parseField(change(field)) })
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

// refusesLate makes a payment for each request whose key is refused for that reason.
func refusesLate(reason error) fault {
	return func(s *server) {
		s.keyOf = func(c *call) (string, error) {
			key, err := parseKey(c)
			if errors.Is(err, reason) {
				c.pays()
			}
			return key, err
		}
	}
}

// pays makes a payment that nobody has ordered.
func (c *call) pays() { _ = c.s.store.write(line{payments: []payment{{User: c.user()}}}) }

// unkeyed gives such requests a key that no other has.
func unkeyed(which func(*call) bool) fault {
	return requests(func(c *call) {
		if which(c) {
			c.Header.Set(keyHeader, rand.Text())
		}
	})
}

// answers replaces the answer to a request whose key has a record.
func answers(with func(*call) *response) fault { return func(s *server) { s.answer = with } }

// running answers the duplicates of a running request.
func running(with func(*call) *response) fault {
	return answers(func(c *call) *response {
		if c.found.print == c.print && c.found.response == nil {
			return with(c)
		}
		return answer(c)
	})
}

// committed replaces how a request ends.
func committed(commit func(p process, c *call) error) fault {
	return func(s *server) {
		s.commit = func(c *call) error { return commit(s.store, c) }
	}
}

// unstored makes the payment of such a request, and does not store its response. Its key is free again, or locked for ever.
func unstored(frees bool, which func(*call) bool) fault {
	return committed(func(p process, c *call) error {
		if !which(c) {
			return p.commit(c)
		}
		if frees {
			defer p.free(c)
		}
		return p.pay(c)
	})
}

// ends makes the payment first, and then ends the claim in another way.
func ends(end func(p process, c *call)) fault {
	return committed(func(p process, c *call) error {
		err := p.pay(c)
		if err == nil {
			end(p, c)
		}
		return err
	})
}

// claimed replaces how a request takes its key.
func claimed(claim func(p process, c *call) error) fault {
	return func(s *server) {
		s.claim = func(c *call) error { return claim(s.store, c) }
	}
}

// has reports whether the text contains the mark.
func has(mark string) func(string) bool {
	return func(text string) bool { return strings.Contains(text, mark) }
}
