package profile

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/onceguard/onceguard/internal/option"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// Profile has the rules of one API. It is a value that does not change, and safe for concurrent use. The zero Profile has
// no rules, and its methods panic: get one from a constructor.
type Profile struct {
	name    string
	scope   func(key, user keyfunc.Func) keyfunc.Func
	options []middleware.Option
	answer  func(row) answer
	body    func(a answer, message string) any
}

const header = "Idempotency-Key"

// ACP returns the rules of the Agentic Commerce Protocol, release 2026-04-17: section 6 of its RFC "Agentic Checkout", as of
// commit c2afc86 of its repository. Earlier releases answer a mismatch with 409, and only recommend the key.
//
// Every POST needs a key, an opaque string. Two requests are the same if their bodies are JSON texts with the same values
// ([middleware.WithJSONBodyFingerprint] says what counts as the same); where it compares bytes, the other spelling of a
// request is refused with 422, and never run. Every response below 500 is stored, a 400 included: do not call
// [middleware.Execution.Discard] for one, or another body could run under its key. One of 500 and above never is
// ([middleware.WithoutServerErrors]), and a retry is processed as a new request: commit the effect and the response in one
// transaction, as section 6.8 advises, with a transactional journal ([middleware.WithJournal]). A charge at a payment
// provider belongs to a worker that reads what the transaction has committed (docs/journal.md).
//
// [middleware.WithAtMostOnce] or an intent journal beside it panics at construction, because both store a 5xx.
func ACP() Profile {
	return Profile{
		name:  "ACP 2026-04-17",
		scope: keyfunc.Scoped,
		options: []middleware.Option{
			middleware.WithMethods(http.MethodPost),
			middleware.WithRequired(),
			middleware.WithJSONBodyFingerprint(),
			middleware.WithStored(func(status int) bool { return status < 500 }),
			middleware.WithoutServerErrors(),
			middleware.WithKeyEcho(header, keyfunc.Opaque(header)),
		},
		answer: func(r row) answer { return r.acp },
		body:   func(a answer, message string) any { return details{a.kind, a.code, message} },
	}
}

// UCP returns the rules of the Universal Commerce Protocol: the REST binding of its checkout and "Replay Protection" in its
// message signatures, as of commit fdcf8934 of its repository (2026-08-22).
//
// A request with a key is protected if its method is POST or PUT. Two requests are the same if their bodies have the same
// bytes. Another body gets 409, as a request in flight does: its code tells the two apart. Responses are kept for the
// recommended 48 hours; which are stored is [middleware.StoreDefault], because the text does not say it of a 5xx. If Redis
// does not answer, nothing runs: do not add [middleware.WithFailOpen], since the text demands 503.
//
// The text wants keys of at least 128 random bits. A server cannot see how random a key is, so that is not checked.
// Signatures and Content-Digest are verified by a middleware outside, before a response is replayed.
func UCP() Profile {
	return Profile{
		name:  "UCP 2026-08-22",
		scope: keyfunc.Scoped,
		options: []middleware.Option{
			middleware.WithMethods(http.MethodPost, http.MethodPut),
			middleware.WithBodyFingerprint(),
			middleware.WithRetention(48 * time.Hour),
		},
		answer: func(r row) answer { return r.ucp },
		body:   func(a answer, message string) any { return map[string]string{"code": a.code, "content": message} },
	}
}

// Stripe returns the rules of version 1 of Stripe's API ("Idempotent requests" and "Errors" in its reference, as of 2026-08),
// for an API whose clients expect these.
//
// A POST with a key is protected. The scope of a key is the user alone, which is the account: the same key sent to another
// endpoint, or with other parameters, gets 400. Every response is stored, also a 500. After a crash a retry runs, unless
// [middleware.WithAtMostOnce] or a journal is added. What the handler refuses before it begins, as Stripe does with invalid
// parameters, it frees by [middleware.Execution.Discard].
func Stripe() Profile {
	return Profile{
		name:  "Stripe v1",
		scope: func(key, user keyfunc.Func) keyfunc.Func { return keyfunc.Compose(key, present(user)) },
		options: []middleware.Option{
			middleware.WithMethods(http.MethodPost),
			middleware.WithStored(middleware.StoreAll),
			middleware.WithKeyEcho(header, keyfunc.Opaque(header)),
		},
		answer: func(r row) answer { return r.stripe },
		body: func(a answer, message string) any {
			return map[string]details{"error": {a.kind, a.code, message}}
		},
	}
}

// present returns user, except that a missing user is [keyfunc.ErrNoUser]: as ErrMissing it would mean that the request has
// no key.
func present(user keyfunc.Func) keyfunc.Func {
	return func(r *http.Request) (string, error) {
		id, err := user(r)
		if errors.Is(err, keyfunc.ErrMissing) || err == nil && id == "" {
			return "", keyfunc.ErrNoUser
		}
		return id, err
	}
}

// String returns the API's name, and the date or version of the text: "ACP 2026-04-17".
func (p Profile) String() string { return p.name }

// Key returns the key function: the header Idempotency-Key, taken as an opaque string ([keyfunc.Opaque]), in the scope that
// the rules give it. user is whatever a client acts for: in ACP the authenticated identity, in UCP the client, in Stripe's
// API the account. It is as in [keyfunc.Standard], and the errors are those of Standard. For an operator,
// [keyfunc.StandardKey] makes the same key with ACP and UCP. With Stripe the key has no route: [keyfunc.ComposedKey] of what
// the client sent and the account makes it. Key panics when user is nil.
func (p Profile) Key(user keyfunc.Func) keyfunc.Func {
	option.Check(user != nil, "profile.Profile.Key: user is nil")
	return p.scope(keyfunc.Opaque(header), user)
}

// Option returns the rules as one option for package middleware. What a later option sets overrides it: a later
// [middleware.WithProblem], for example, writes the errors instead.
func (p Profile) Option() middleware.Option {
	opts := append([]middleware.Option{middleware.WithProblem(p.refuse)}, p.options...)
	for problem, r := range table {
		opts = append(opts, middleware.WithProblemStatus(problem, p.answer(r).status))
	}
	return middleware.Options(opts...)
}

// refuse writes a problem as an error of the API.
func (p Profile) refuse(w http.ResponseWriter, _ *http.Request, problem middleware.Problem) {
	name := problem.Type[strings.LastIndexByte(problem.Type, ':')+1:]
	message, ok := messages[name]
	if !ok {
		message = problem.Detail
	}
	body, _ := json.Marshal(p.body(p.answer(table[name]), message)) // strings always marshal
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(problem.Status)
	_, _ = w.Write(body) // an error means that the client disconnected
}
