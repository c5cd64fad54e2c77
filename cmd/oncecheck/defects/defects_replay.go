package main

import (
	"bytes"
	"net/http"
	"strings"
	"time"
)

// otherBody are the checks that fail if no replay has the body of the first response.
const otherBody = `once/concurrent once/instances-concurrent once/http2 replay/body replay/body-binary
	replay/body-large replay/encoding mismatch/original-stays mismatch/whitespace scope/user-runs
	inflight/answer inflight/then-replay store/remembers crash/after-answer load/shuffled`

// replayDefects answer a repetition by something else than the first answer.
var replayDefects = []defect{
	{name: "replay-empty", about: "a replay has no body", fails: otherBody,
		spoil: all(waits, replays(func(a *response) { a.Body = nil }))},
	{name: "replay-null", about: "an empty body is stored as null", fails: "replay/body-empty",
		spoil: empties(func(a *response) { a.Body = []byte("null") })},
	{name: "replay-typed", about: "a replay without a body has a Content-Type, which is no defect",
		spoil: empties(func(a *response) { a.Header.Set("Content-Type", "text/plain") })},
	{name: "replay-empty-500", about: "an empty response is replayed as a 500", fails: "replay/answered", brief: true,
		spoil: empties(func(a *response) { a.Status = http.StatusInternalServerError })},
	{name: "replay-cut", about: "a body is stored up to 64 KiB", fails: "replay/body-large",
		spoil: replays(func(a *response) { a.Body = a.Body[:min(len(a.Body), 64<<10)] })},
	{name: "replay-mangled", about: "a body is stored as UTF-8", fails: "replay/body-binary",
		spoil: replays(func(a *response) { a.Body = bytes.ToValidUTF8(a.Body, []byte("\uFFFD")) })},
	{name: "replay-reformatted", about: "a body is stored as a JSON value, and written anew", fails: otherBody,
		spoil: all(waits, replays(func(a *response) { a.Body = bytes.ReplaceAll(a.Body, []byte(":"), []byte(": ")) }))},
	{name: "replay-without-location", about: "a replay has no Location", fails: "replay/redirect replay/location replay/headers",
		spoil: drops("Location")},
	{name: "replay-without-type", about: "the Content-Type of a replay is guessed", fails: "replay/content-type replay/headers",
		spoil: drops("Content-Type")},
	{name: "replay-without-etag", about: "only the common headers are stored", fails: "replay/headers", spoil: drops("Etag")},
	{name: "replay-one-value", about: "of a header with several values the first is stored", fails: "replay/headers-multiple",
		spoil: replays(func(a *response) { a.Header["Link"] = a.Header["Link"][:min(1, len(a.Header["Link"]))] })},
	{name: "replay-joined", about: "the values of a header are joined without a comma", fails: "replay/headers-multiple",
		spoil: replays(func(a *response) { a.Header.Set("Link", strings.Join(a.Header["Link"], " ")) })},
	{name: "replay-200", about: "a replay is always a 200", fails: "replay/status replay/redirect replay/error", brief: true,
		spoil: replays(func(a *response) { a.Status = http.StatusOK })},
	{name: "replay-unmarked", about: "a replay does not say that it is one", fails: "replay/marked",
		spoil: drops("Idempotent-Replayed")},
	{name: "first-marked", about: "the first response says that it is a replay", fails: "replay/first-unmarked",
		spoil: answers(func(_ *http.Request, a *response) {
			if a.Header.Get("Location") != "" {
				a.Header.Set("Idempotent-Replayed", "true")
			}
		})},
	{name: "replay-dated", about: "a replay has the Date of the first response", fails: "replay/date",
		spoil: committed(func(p process, c *claim, _ *http.Request, a *response, made []payment) error {
			a.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
			return p.commit(c, a, made)
		})},
	{name: "replay-sets-cookie", about: "a replay sets the cookie of the first response", fails: "replay/no-cookie",
		spoil: func(s *server) {
			s.answer = func(r *http.Request, found *record, print string) *response {
				a := answer(r, found, print)
				if isReplay(a) {
					a.Header["Set-Cookie"] = found.response.Header["Set-Cookie"]
				}
				return a
			}
		}},
	{name: "replay-without-trailer", about: "trailers are not stored", fails: "replay/trailers",
		spoil: replays(func(a *response) { a.Trailer = nil })},
	{name: "replay-encoding", about: "a compressed body is stored without its Content-Encoding", fails: "replay/encoding",
		spoil: committed(func(p process, c *claim, r *http.Request, a *response, made []payment) error {
			stored := *a
			if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
				stored.Body = zip(a.Body)
			}
			return p.commit(c, &stored, made)
		})},
	{name: "replay-aged", about: "a replay has an Age", fails: "cache/no-age",
		spoil: replays(func(a *response) { a.Header.Set("Age", "1") })},
	{name: "replay-another", about: "a replay has another payment's id", fails: otherBody,
		spoil: all(waits, replays(func(a *response) {
			if id := bytes.Index(a.Body, []byte(`"id":"`)); id >= 0 {
				a.Body = bytes.Join([][]byte{a.Body[:id+6], []byte("???"), a.Body[id+9:]}, nil)
			}
		}))},
	{name: "body-ignored", about: "another body under the same key gets the stored response", brief: true,
		fails: "mismatch/body mismatch/in-flight-status", spoil: bodyIgnored},
	{name: "body-ignored-waits", about: "another body under the same key waits, and gets the stored response",
		fails: "mismatch/body mismatch/in-flight", spoil: all(waits, bodyIgnored)},
	{name: "query-ignored", about: "another query under the same key gets the stored response", fails: "mismatch/query",
		spoil: prints(func(_ *http.Request, body []byte) string { return print("", body) })},
	{name: "method-ignored", about: "another method under the same key gets the stored response", fails: "mismatch/method",
		spoil: scopes(func(user, _, path, key string) string { return scope(user, "", path, key) })},
	{name: "path-ignored", about: "another path under the same key gets the stored response", fails: "mismatch/path scope/route",
		spoil: scopes(func(user, method, _, key string) string { return scope(user, method, "", key) })},
	{name: "mismatch-runs", about: "another body under the same key runs", fails: "mismatch/body mismatch/in-flight",
		spoil: claimed(func(p process, scope, print string) (*claim, *record, error) { return p.claim(scope+print, print) })},
	{name: "mismatch-runs-too", about: "another body under the same key is refused, but after it has run",
		fails: "mismatch/not-run mismatch/in-flight",
		spoil: func(s *server) {
			s.answer = func(r *http.Request, found *record, print string) *response {
				if found.print != print {
					_ = s.store.pay([]payment{{User: user(r)}})
				}
				return answer(r, found, print)
			}
		}},
	{name: "mismatch-409", about: "another body under the same key gets 409",
		fails: "mismatch/status mismatch/in-flight-status errors/says-retry",
		spoil: status(http.StatusUnprocessableEntity, "", http.StatusConflict)},
	{name: "mismatch-frees", about: "another body under the same key is refused, and frees the key", fails: "mismatch/original-stays",
		spoil: claimed(func(p process, scope, print string) (*claim, *record, error) {
			mine, found, err := p.claim(scope, print)
			if found != nil && found.print != print && found.response != nil {
				p.forget(scope)
			}
			return mine, found, err
		})},
	{name: "mismatch-late", about: "another body is only noticed when the first request has ended; until then it gets 409",
		fails: "mismatch/in-flight-status",
		spoil: func(s *server) {
			s.answer = func(r *http.Request, found *record, print string) *response {
				if found.response == nil {
					print = found.print
				}
				return answer(r, found, print)
			}
		}},
	{name: "mismatch-leaks", about: "the refusal of another body shows the stored response", fails: "mismatch/leak", brief: true,
		spoil: func(s *server) {
			s.answer = func(r *http.Request, found *record, print string) *response {
				a := answer(r, found, print)
				if found.print != print && found.response != nil {
					a.Body = bytes.Join([][]byte{bytes.TrimSuffix(a.Body, []byte("}")), []byte(`,"stored":`), found.response.Body, []byte("}")}, nil)
				}
				return a
			}
		}},
	{name: "user-ignored", about: "another user with the same key gets the stored response", brief: true,
		fails: "scope/user scope/user-runs scope/user-in-flight", spoil: userIgnored},
	{name: "leaks-later", brief: true,
		about: "another user, and another route, get 409 for a moment after the response, and then the stored response",
		fails: "mismatch/path scope/user scope/user-runs scope/user-in-flight scope/route",
		spoil: all(
			scopes(func(_, method, _, key string) string { return scope("", method, "", key) }),
			committed(func(p process, c *claim, _ *http.Request, a *response, made []payment) error {
				err := p.write(line{c.scope, c.print, a, made})
				if err == nil {
					p.endLater(3*gap/2, c, a)
				}
				return err
			}))},
	{name: "user-compared", about: "another user with the same key is refused", fails: "scope/user-runs scope/user-in-flight",
		spoil: all(userIgnored, prints(func(r *http.Request, body []byte) string { return user(r) + print(r.URL.RawQuery, body) }))},
}

var (
	bodyIgnored = prints(func(r *http.Request, _ []byte) string { return print(r.URL.RawQuery, nil) })
	userIgnored = scopes(func(_, method, path, key string) string { return scope("", method, path, key) })
)

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
