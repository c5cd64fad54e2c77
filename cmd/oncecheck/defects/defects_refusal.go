package main

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// refusalDefects refuse wrongly: a duplicate of a running request, a failed request, a browser.
var refusalDefects = []defect{
	{name: "retry-after-missing", about: "the 409 of a running request does not say when to retry",
		fails: "inflight/retry-after errors/says-retry", spoil: problems(func(a *response) { a.Header.Del("Retry-After") })},
	{name: "retry-after-0", about: "the client is told to retry at once", fails: "inflight/retry-after-sane", spoil: retryAfter("0")},
	{name: "retry-after-past", about: "the client is told to retry yesterday", fails: "inflight/retry-after-sane",
		spoil: retryAfter(time.Now().Add(-24 * time.Hour).UTC().Format(http.TimeFormat))},
	{name: "retry-after-absurd", about: "the client is told to retry next year", fails: "inflight/retry-after-sane",
		spoil: retryAfter("31622400")},
	{name: "retry-after-malformed", about: "the client is told to retry in 1.5s", fails: "inflight/retry-after-sane",
		spoil: retryAfter("1.5s")},
	{name: "running-500", about: "a duplicate of a running request gets 500", fails: "inflight/answer",
		spoil: running(func(*http.Request, *record) *response {
			return problem(http.StatusInternalServerError, 1, "unknown error")
		})},
	{name: "running-200", about: "a duplicate of a running request is told that all is well",
		fails: "once/concurrent once/instances-concurrent once/http2 inflight/answer load/shuffled",
		spoil: running(func(*http.Request, *record) *response {
			return &response{Status: http.StatusOK, Body: []byte(`{"state":"running"}`)}
		})},
	{name: "running-hangs", about: "a duplicate of a slow request gets no answer", fails: "inflight/time", flags: hangs,
		spoil: running(func(r *http.Request, found *record) *response {
			if !r.URL.Query().Has("slow") {
				return answer(r, found, found.print)
			}
			<-r.Context().Done()
			return nil
		})},
	{name: "running-for-ever", about: "after a duplicate of a running request the key is answered by 409 for ever", flags: locks,
		fails: "once/client-leaves-answered inflight/then-replay",
		spoil: func(s *server) {
			var stuck sync.Map // by the record's channel
			s.answer = func(r *http.Request, found *record, print string) *response {
				if _, ok := stuck.Load(found.ended); ok || found.response == nil {
					stuck.Store(found.ended, true)
					found.response = nil
				}
				return answer(r, found, print)
			}
		}},
	{name: "never-unlocked", about: "the response is sent and not stored: a repetition gets 409 for ever", flags: locks,
		fails: `once/client-leaves-answered replay/answered replay/error mismatch/whitespace inflight/then-replay
			errors/failed-answered store/remembers crash/at-most-once crash/after-answer`,
		spoil: unstored(false, func(*http.Request, *response) bool { return true })},
	{name: "invalid-locks", about: "a request that does not pass validation locks its key", fails: "replay/error", flags: locks,
		spoil: unstored(false, func(_ *http.Request, a *response) bool { return a.Status == http.StatusBadRequest })},
	{name: "invalid-locks-user", about: "after a request that does not pass validation, its user gets 409 for every key",
		fails: "replay/error errors/validation load/shuffled",
		spoil: func(s *server) {
			s.commit = func(c *claim, r *http.Request, a *response, made []payment) error {
				if a.Status >= 400 {
					_, _, _ = s.store.claim("locked "+user(r), "")
				}
				return s.store.commit(c, a, made)
			}
			s.scopeOf = func(user, method, path, key string) string {
				if found, _ := s.store.look("locked " + user); found != nil {
					return "locked " + user
				}
				return scope(user, method, path, key)
			}
		}},
	{name: "problem-text", about: "a refusal is plain text", fails: "errors/problem",
		spoil: problems(func(a *response) { a.Header.Set("Content-Type", "text/plain") })},
	{name: "problem-malformed", about: "a problem document is not JSON", fails: "errors/problem",
		spoil: problems(func(a *response) { a.Body = bytes.TrimSuffix(a.Body, []byte("}")) })},
	{name: "problem-status", about: "the status in a problem document is not that of the response", fails: "errors/problem",
		spoil: problems(func(a *response) {
			a.Body = bytes.ReplaceAll(a.Body, []byte(strconv.Itoa(a.Status)), []byte("500"))
		})},
	{name: "problem-cached", about: "a cache may store a refusal", fails: "errors/no-store",
		spoil: problems(func(a *response) { a.Header.Set("Cache-Control", "public, max-age=60") })},
	{name: "key-shown", about: "each response repeats the key", fails: "errors/key-not-shown",
		spoil: answers(func(r *http.Request, a *response) { a.Header.Set("X-Key", r.Header.Get(keyHeader)) })},
	{name: "preflight-needs-key", about: "a CORS preflight is refused for want of a key", fails: "cors/preflight",
		spoil: answers(func(r *http.Request, a *response) {
			if len(r.Header[keyHeader]) == 0 && r.Method == http.MethodOptions {
				*a = *problem(http.StatusBadRequest, 0, errNoKey.Error())
				a.Header["Access-Control-Allow-Origin"] = nil
			}
		})},
	{name: "preflight-without-key", about: "a CORS preflight does not allow the Idempotency-Key header", fails: "cors/allowed",
		spoil: answers(func(_ *http.Request, a *response) { a.Header.Del("Access-Control-Allow-Headers") })},
	{name: "nothing-exposed", about: "a browser's script may not read Idempotent-Replayed and Retry-After", fails: "cors/exposed",
		spoil: answers(func(_ *http.Request, a *response) { a.Header["Access-Control-Expose-Headers"] = nil })},
}

// retryAfter replaces the value of the header where it stands.
func retryAfter(value string) fault {
	return problems(func(a *response) {
		if a.Header.Get("Retry-After") != "" {
			a.Header.Set("Retry-After", value)
		}
	})
}
