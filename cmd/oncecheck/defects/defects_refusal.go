package main

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// refusalDefects refuse wrongly: a duplicate of a running request, a failed request, a browser.
var refusalDefects = []defect{{
	name: "retry-after-missing", about: "the 409 of a running request does not say when to retry",
	fails: []string{"inflight/retry-after", "errors/says-retry"},
	spoil: problems(func(answer *response) { answer.Header.Del("Retry-After") }),
}, {
	name: "retry-after-0", about: "the client is told to retry at once",
	fails: []string{"inflight/retry-after-sane"},
	spoil: retryAfter(func() string { return "0" }),
}, {
	name: "retry-after-past", about: "the client is told to retry yesterday",
	fails: []string{"inflight/retry-after-sane"},
	spoil: retryAfter(func() string { return time.Now().Add(-24 * time.Hour).UTC().Format(http.TimeFormat) }),
}, {
	name: "retry-after-absurd", about: "the client is told to retry next year",
	fails: []string{"inflight/retry-after-sane"},
	spoil: retryAfter(func() string { return strconv.Itoa(366 * 24 * 3600) }),
}, {
	name: "retry-after-malformed", about: "the client is told to retry in 1.5s",
	fails: []string{"inflight/retry-after-sane"},
	spoil: retryAfter(func() string { return "1.5s" }),
}, {
	name: "running-500", about: "a duplicate of a running request gets 500",
	fails: []string{"inflight/answer"},
	spoil: running(func(w http.ResponseWriter) { problem(w, http.StatusInternalServerError, 1, "unknown error") }),
}, {
	name: "running-200", about: "a duplicate of a running request is told that all is well",
	fails: []string{"once/concurrent", "once/instances-concurrent", "once/http2", "inflight/answer", "load/shuffled"},
	spoil: running(func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"state":"running"}`))
	}),
}, {
	name: "running-hangs", about: "a duplicate of a slow request gets no answer", hangs: true,
	fails: []string{"inflight/time"},
	spoil: inside(func(s *server) {
		s.answer = func(w http.ResponseWriter, r *http.Request, found *record, print string) {
			if found.response == nil && r.URL.Query().Has("slow") && found.print == print {
				<-r.Context().Done()
				return
			}
			s.answerFor(w, r, found, print)
		}
	}),
}, {
	name: "running-for-ever", about: "after a duplicate of a running request the key is answered by 409 for ever", locks: true,
	fails: []string{"once/client-leaves-answered", "inflight/then-replay"},
	spoil: inside(func(s *server) {
		var stuck sync.Map // by the record's channel
		s.claim = func(scope, print string) (*claim, *record, error) {
			mine, found, err := s.store.claim(s.epoch, scope, print)
			if found != nil {
				if _, ok := stuck.Load(found.ended); ok {
					found.response = nil
				}
			}
			return mine, found, err
		}
		s.answer = func(w http.ResponseWriter, r *http.Request, found *record, print string) {
			if found.response == nil {
				stuck.Store(found.ended, true)
			}
			s.answerFor(w, r, found, print)
		}
	}),
}, {
	name: "never-unlocked", about: "the response is sent and not stored: a repetition gets 409 for ever", locks: true,
	fails: []string{
		"once/client-leaves-answered", "replay/answered", "replay/error", "mismatch/whitespace", "inflight/then-replay",
		"errors/failed-answered", "store/remembers", "crash/at-most-once", "crash/after-answer",
	},
	spoil: inside(func(s *server) {
		s.commit = func(_ *claim, _ *http.Request, _ *response, made []payment) error {
			return s.store.pay(s.epoch, made...)
		}
	}),
}, {
	name: "invalid-locks", about: "a request that does not pass validation locks its key", locks: true,
	fails: []string{"replay/error"},
	spoil: inside(func(s *server) {
		s.commit = func(c *claim, r *http.Request, answer *response, made []payment) error {
			if answer.Status == http.StatusBadRequest {
				return nil
			}
			return s.store.commit(c, answer, made...)
		}
	}),
}, {
	name: "invalid-locks-user", about: "after a request that does not pass validation, its user gets 409 for every key",
	fails: []string{"replay/error", "errors/validation", "load/shuffled"},
	spoil: inside(func(s *server) {
		lockedUser := func(r *http.Request) string { return "locked " + user(r) }
		s.commit = func(c *claim, r *http.Request, answer *response, made []payment) error {
			if answer.Status >= 400 {
				_, _, _ = s.store.claim(s.epoch, lockedUser(r), "")
			}
			return s.store.commit(c, answer, made...)
		}
		s.scopeOf = func(r *http.Request, key string) string {
			s.store.mu.Lock()
			defer s.store.mu.Unlock()
			if _, ok := s.store.records[lockedUser(r)]; ok {
				return lockedUser(r)
			}
			return scope(r, key)
		}
	}),
}, {
	name: "problem-text", about: "a refusal is plain text",
	fails: []string{"errors/problem"},
	spoil: problems(func(answer *response) {
		answer.Header.Set("Content-Type", "text/plain")
		answer.Body = []byte("no\n")
	}),
}, {
	name: "problem-malformed", about: "a problem document is not JSON",
	fails: []string{"errors/problem"},
	spoil: problems(func(answer *response) { answer.Body = bytes.TrimSuffix(answer.Body, []byte("}")) }),
}, {
	name: "problem-status", about: "the status in a problem document is not that of the response",
	fails: []string{"errors/problem"},
	spoil: problems(func(answer *response) {
		status := []byte(strconv.Itoa(answer.Status))
		answer.Body = bytes.ReplaceAll(answer.Body, status, []byte("500"))
	}),
}, {
	name: "problem-cached", about: "a cache may store a refusal",
	fails: []string{"errors/no-store"},
	spoil: problems(func(answer *response) { answer.Header["Cache-Control"] = []string{"public, max-age=60"} }),
}, {
	name: "key-shown", about: "each response repeats the key",
	fails: []string{"errors/key-not-shown"},
	spoil: outside(func(h http.Handler, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Key", r.Header.Get(keyHeader))
		h.ServeHTTP(w, r)
	}),
}, {
	name: "preflight-needs-key", about: "a CORS preflight is refused for want of a key",
	fails: []string{"cors/preflight"},
	spoil: outside(func(h http.Handler, w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Header[keyHeader]; !ok && r.Method == http.MethodOptions {
			problem(w, http.StatusBadRequest, 0, errNoKey.Error())
			return
		}
		h.ServeHTTP(w, r)
	}),
}, {
	name: "preflight-without-key", about: "a CORS preflight does not allow the Idempotency-Key header",
	fails: []string{"cors/allowed"},
	spoil: outside(func(h http.Handler, w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodOptions {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Allow-Methods", "POST")
		w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
		w.WriteHeader(http.StatusNoContent)
	}),
}, {
	name: "nothing-exposed", about: "a browser's script may not read Idempotent-Replayed and Retry-After",
	fails: []string{"cors/exposed"},
	spoil: outside(func(h http.Handler, w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(hiding{w}, r)
	}),
}}

// retryAfter replaces the value of the header where it stands.
func retryAfter(value func() string) func(*server, http.Handler) http.Handler {
	return problems(func(answer *response) {
		if answer.Header.Get("Retry-After") != "" {
			answer.Header.Set("Retry-After", value())
		}
	})
}

// running answers the duplicates of a running request.
func running(answer func(http.ResponseWriter)) func(*server, http.Handler) http.Handler {
	return inside(func(s *server) {
		s.answer = func(w http.ResponseWriter, r *http.Request, found *record, print string) {
			if found.print == print && found.response == nil {
				answer(w)
				return
			}
			s.answerFor(w, r, found, print)
		}
	})
}

// hiding drops what the server exposes to scripts.
type hiding struct{ http.ResponseWriter }

// WriteHeader removes Access-Control-Expose-Headers before it sends the header.
func (h hiding) WriteHeader(status int) {
	h.Header().Del("Access-Control-Expose-Headers")
	h.ResponseWriter.WriteHeader(status)
}
