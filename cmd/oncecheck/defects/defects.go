package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync/atomic"
	"time"
)

// onceDefects run a request twice.
var onceDefects = []defect{
	// The key is checked and then ignored.
	d("unprotected", `key/spelling key/never-unprotected once/repeat once/repeat-later once/concurrent
		once/instances-repeat once/instances-concurrent
		once/client-leaves once/answer-lost once/samples replay/body
		replay/location replay/headers
		replay/marked mismatch/body mismatch/original-stays
		mismatch/whitespace mismatch/in-flight scope/user-runs inflight/answer inflight/once
		inflight/then-replay errors/failed-once store/remembers crash/at-most-once crash/after-answer load/shuffled`,
		keys(func(string) string { return rand.Text() })),
	// A request looks for a record, and then writes its own.
	d("looks-then-locks", raced, claimed(func(p process, c *call) (err error) {
		if c.found, err = p.look(c.scope); c.found != nil || err != nil {
			return err
		}
		time.Sleep(gap)
		defer p.lock()()
		p.take(c)
		return nil
	})),
	// Responses are shared, but an instance does not see what runs on the other.
	d("lock-per-process", "once/instances-concurrent load/shuffled", func(s *server) {
		s.claim = func(c *call) (err error) {
			shared := scope(c)
			if c.found, err = s.store.look(shared); c.found != nil || err != nil {
				return err
			}
			c.scope = s.name + shared
			return s.store.claim(c)
		}
		s.commit = func(c *call) error {
			time.Sleep(gap)
			c.scope = scope(c)
			return s.store.commit(c)
		}
	}),
	// Each instance has records of its own.
	d("store-per-process", "once/instances-repeat once/instances-concurrent load/shuffled",
		scopes(func(c *call) string { return c.s.name + scope(c) })),
	// The claim is freed, and then the response is stored.
	d("unlocked-before-stored", `once/concurrent once/instances-concurrent once/client-leaves
		inflight/answer inflight/once inflight/then-replay load/shuffled`,
		all(waits, ends(func(p process, c *call) {
			p.free(c)
			time.Sleep(gap)
			c.mine = newRecord(c.print)
			_ = p.commit(c)
		}))),
	d("forgets-soon", "once/repeat-later", forgetsSoon),
	// A client that leaves ends the claim, although the payment is made; or the key stays locked.
	d("disconnect-frees", "once/client-leaves", unstored(true, hasLeft)),
	d("disconnect-locks", "once/client-leaves-answered", unstored(false, hasLeft), locks),
	// A request whose body is cut off runs with what has come.
	d("cut-body-runs", "once/request-cut", requests(func(c *call) { c.Body = lenient{c.Body} })),
	// A request whose body is cut off does not run, and keeps its key.
	d("cut-body-locks", "once/request-cut", requests(func(c *call) {
		var err, bad error
		c.body, err = io.ReadAll(c.Body)
		if c.key, bad = parseKey(c); err != nil && bad == nil {
			c.scope, c.print = scope(c), c.s.printOf(c)
			_ = c.s.claim(c)
		}
		c.Body = io.NopCloser(bytes.NewReader(c.body))
	})),
	// The claim of a slow request runs out after 100 ms. Another may take as long on a busy machine.
	d("lease-not-renewed", `once/client-leaves mismatch/in-flight inflight/answer inflight/once inflight/then-replay`,
		claimed(func(p process, c *call) error {
			err := p.claim(c)
			if c.found == nil && err == nil && strings.Contains(c.print, "slow=") {
				mine := c.mine
				time.AfterFunc(gap, func() {
					defer p.lock()()
					if mine.response == nil && p.records[c.scope] == mine {
						delete(p.records, c.scope)
					}
				})
			}
			return err
		})),
	// An equal body under another key gets the stored response.
	d("deduped-by-body", "key/length-distinct key/value-case once/keys-differ errors/failed-answered",
		claimed(func(p process, c *call) (err error) {
			// The scope but for the key.
			same := c.scope[:strings.LastIndex(c.scope, " ")] + c.print
			if c.found, err = p.look(same); c.found != nil || err != nil {
				return err
			}
			err = p.claim(c)
			if c.found == nil && err == nil {
				defer p.lock()()
				p.records[same] = c.mine
			}
			return err
		}), locks),
	// A duplicate of a running request waits, and gets an empty 200.
	d("duplicate-empty", "once/concurrent once/instances-concurrent inflight/answer load/shuffled",
		running(func(c *call) *response {
			<-c.found.ended
			return &response{Status: 200}
		})),
}

// raced are the checks that fail if requests that arrive at the same time all run.
const raced = "once/concurrent once/instances-concurrent load/shuffled"

// forgetsSoon keeps the last response until nothing has been asked or answered for 1.9 seconds. It has no timer, which a busy
// machine may run too late.
func forgetsSoon(s *server) {
	var at atomic.Int64   // when the instance was asked, or has answered
	var last atomic.Value // the scope of what it has stored last
	s.claim = func(c *call) error {
		if now := time.Now().UnixMilli(); now-at.Swap(now) >= 1900 {
			s.store.forget(fmt.Sprint(last.Load()))
		}
		return s.store.claim(c)
	}
	s.commit = func(c *call) error {
		last.Store(c.scope)
		return s.store.commit(c)
	}
	s.out = func(*call) { at.Store(time.Now().UnixMilli()) }
}

// hasLeft reports whether the client has closed its connection.
func hasLeft(c *call) bool { return c.Context().Err() != nil }

// lenient takes the end of a connection for the end of the body.
type lenient struct{ io.ReadCloser }

// Read is an io.Reader's.
func (l lenient) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

// otherBody are the checks that fail if no replay has the body of the first response.
const otherBody = `once/concurrent once/instances-concurrent replay/body
	mismatch/original-stays mismatch/whitespace scope/user-runs
	inflight/answer inflight/then-replay store/remembers crash/after-answer load/shuffled`

// replayDefects answer a repetition by something else than the first answer.
var replayDefects = []defect{
	// A replay has no body; an empty one is stored as null.
	d("replay-empty", otherBody, all(waits, replays(func(a *response) { a.Body = nil }))),
	d("replay-null", "replay/body", empties(func(a *response) { a.Body = []byte("null") })),
	// A replay without a body has a Content-Type, which is no defect.
	d("replay-typed", "", empties(func(a *response) { a.Header.Set("Content-Type", "text/plain") })),
	// An empty response is replayed as a 500.
	d("replay-empty-500", "replay/answered", empties(func(a *response) { a.Status = 500 })),
	// A body is stored up to 64 KiB, as UTF-8, as a JSON value that is written anew.
	d("replay-cut", "replay/body", replays(func(a *response) { a.Body = a.Body[:min(len(a.Body), 64<<10)] })),
	d("replay-mangled", "replay/body",
		replays(func(a *response) { a.Body = bytes.ToValidUTF8(a.Body, []byte("\uFFFD")) })),
	d("replay-reformatted", otherBody,
		all(waits, replays(func(a *response) { a.Body = bytes.ReplaceAll(a.Body, []byte(":"), []byte(": ")) }))),
	// A header is lost.
	d("replay-without-location", "replay/location replay/headers", drops("Location")),
	d("replay-without-type", "replay/content-type replay/headers", drops("Content-Type")),
	d("replay-without-etag", "replay/headers", drops("Etag")),
	d("replay-unmarked", "replay/marked", drops("Idempotent-Replayed")),
	// Of a header with several values the first is stored; they are joined without a comma.
	d("replay-one-value", "replay/headers",
		replays(func(a *response) { a.Header["Link"] = a.Header["Link"][:min(1, len(a.Header["Link"]))] })),
	d("replay-joined", "replay/headers",
		replays(func(a *response) { a.Header.Set("Link", strings.Join(a.Header["Link"], " ")) })),
	// A replay is always a 200.
	d("replay-200", "replay/status replay/error", replays(func(a *response) { a.Status = 200 })),
	// A replay sets the cookie of the first response.
	d("replay-sets-cookie", "replay/no-cookie", answers(func(c *call) *response {
		a := answer(c)
		if isReplay(a) {
			a.Header["Set-Cookie"] = c.found.response.Header["Set-Cookie"]
		}
		return a
	})),
	// A replay has another payment's id.
	d("replay-another", otherBody, all(waits, replays(func(a *response) {
		if id := bytes.Index(a.Body, []byte(`"id":"`)); id >= 0 {
			a.Body = bytes.Join([][]byte{a.Body[:id+6], a.Body[id+9:]}, []byte("???"))
		}
	}))),
}

// mismatchDefects take another request for the first.
var mismatchDefects = []defect{
	// Another body under the same key gets the stored response, at once or when that is there.
	d("body-ignored", "mismatch/body mismatch/in-flight-status", bodyIgnored),
	d("body-ignored-waits", "mismatch/body mismatch/in-flight", all(waits, bodyIgnored)),
	// Another query, method, path under the same key gets the stored response.
	d("query-ignored", "mismatch/query", jsonValues),
	d("method-ignored", "mismatch/method", scopes(func(c *call) string { return fmt.Sprint(c.user(), c.URL.Path, c.key) })),
	d("path-ignored", "mismatch/path",
		scopes(func(c *call) string { return fmt.Sprint(c.user(), c.Method, c.key) })),
	// Another body under the same key runs; it is refused after it has run.
	d("mismatch-runs", "mismatch/body mismatch/in-flight", claimed(func(p process, c *call) error {
		c.scope = scope(c) + c.print
		return p.claim(c)
	})),
	d("mismatch-runs-too", "mismatch/not-run mismatch/in-flight", answers(func(c *call) *response {
		if c.found.print != c.print {
			c.pays()
		}
		return answer(c)
	})),
	// Another body under the same key gets 409.
	d("mismatch-409", "mismatch/status mismatch/in-flight-status", status(422, "", 409)),
	// Another body under the same key is refused, and frees the key.
	d("mismatch-frees", "mismatch/original-stays", claimed(func(p process, c *call) error {
		err := p.claim(c)
		if c.found != nil && c.found.print != c.print && c.found.response != nil {
			p.forget(c.scope)
		}
		return err
	})),
	// Another body is only noticed when the first request has ended; until then it gets 409.
	d("mismatch-late", "mismatch/in-flight-status", answers(func(c *call) *response {
		if c.found.response == nil {
			c.print = c.found.print
		}
		return answer(c)
	})),
	// The refusal of another body shows the stored response.
	d("mismatch-leaks", "mismatch/leak", answers(func(c *call) *response {
		a := answer(c)
		if c.found.print != c.print && c.found.response != nil {
			text := bytes.TrimSuffix(a.Body, []byte("}"))
			a.Body = fmt.Appendf(text, `,"stored":%s}`, c.found.response.Body)
		}
		return a
	})),
	// Another user with the same key gets the stored response, or is refused.
	d("user-ignored", "scope/user scope/user-runs scope/user-in-flight", userIgnored),
	d("user-compared", "scope/user-runs scope/user-in-flight",
		all(userIgnored, prints(func(c *call) string { return c.user() + fingerprint(c) }))),
	// Another user, and another route, get 409 for a moment after the response, and then the stored response.
	d("leaks-later", "mismatch/path scope/user scope/user-runs scope/user-in-flight", all(
		scopes(func(c *call) string { return c.Method + c.key }),
		committed(func(p process, c *call) error {
			err := p.write(line{c.scope, c.print, c.reply, c.made})
			if err == nil {
				p.endLater(3*gap/2, c)
			}
			return err
		}))),
}

var (
	bodyIgnored = prints(func(c *call) string { return c.URL.RawQuery })
	userIgnored = scopes(func(c *call) string { return fmt.Sprint(c.Method, c.URL.Path, c.key) })
)

// profileDefects keep the rules of an API that is specified elsewhere, but for one.
var profileDefects = []defect{
	d("acp", "", acp, "-profile=acp"),
	// No response repeats the key; no refusal does; a replay repeats no key of its own.
	d("acp-key-not-echoed", "key/echoed", all(acp, replies(func(*call) {})), "-profile=acp"),
	d("acp-refusals-not-echoed", "key/echoed", all(acp, replies(func(c *call) {
		if c.reply.title == "" {
			echo(c)
		}
	})), "-profile=acp"),
	d("acp-stored-key-echoed", "key/echoed", all(acp, replies(func(c *call) {
		if echo(c); isReplay(c.reply) {
			c.reply.Header.Set(keyHeader, rand.Text())
		}
	})), "-profile=acp"),
	// A payment whose response is a 5xx stays, and the response is stored.
	d("acp-5xx-stored", "errors/5xx-not-stored", all(acp, func(s *server) { s.pay = pay }), "-profile=acp"),
	// 1 and 1.0 in the body are two requests.
	d("acp-number-spelling", "mismatch/number-spelling", all(acp, prints(func(c *call) string {
		return canonical(c.body, (*json.Decoder).UseNumber)
	})), "-profile=acp"),
	// A member of the body that is null is none.
	d("acp-null", "mismatch/null", all(acp, prints(func(c *call) string {
		var members map[string]any
		if json.Unmarshal(c.body, &members) != nil {
			return string(c.body)
		}
		maps.DeleteFunc(members, func(_ string, value any) bool { return value == nil })
		return fmt.Sprint(members)
	})), "-profile=acp"),
	d("ucp", "", ucp, "-profile=ucp"),
	// The JSON values of the body are compared in place of its bytes.
	d("ucp-json", "mismatch/bytes", all(ucp, jsonValues), "-profile=ucp"),
	d("stripe", "", all(reusedGets(400), replies(echo)), "-profile=stripe"),
	d("stripe-key-not-echoed", "key/echoed", reusedGets(400), "-profile=stripe"),
}

// jsonValues has the JSON value of the body alone compared.
var jsonValues = prints(func(c *call) string { return canonical(c.body, func(*json.Decoder) {}) })

// acp keeps the rules of ACP: a payment whose response is a 5xx is rolled back.
var acp = all(jsonValues, replies(echo), func(s *server) {
	s.pay = func(c *call) {
		if pay(c); c.reply.Status >= 500 {
			c.made = nil
		}
	}
})

// ucp has the bytes of the body compared.
var ucp = all(reusedGets(409), prints(func(c *call) string { return string(c.body) }))

// reusedGets gives a key of another request that status.
func reusedGets(status int) fault {
	return answers(func(c *call) *response {
		a := answer(c)
		if c.found.print != c.print {
			a = problem(status, a.title)
		}
		return a
	})
}

// echo repeats the key in a response.
func echo(c *call) {
	if key := c.Header.Get(keyHeader); key != "" {
		c.reply.Header.Set(keyHeader, key)
	}
}

// canonical returns the text that equal JSON values have in common. A body that is no JSON stays as it is.
func canonical(body []byte, set func(*json.Decoder)) string {
	decoder := json.NewDecoder(bytes.NewReader(body))
	set(decoder)
	var value any
	if decoder.Decode(&value) != nil {
		return string(body)
	}
	text, _ := json.Marshal(value)
	return string(text)
}
