package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// replayDefects answer a repetition by something else than the first answer.
var replayDefects = []defect{{
	name: "replay-empty", about: "a replay has no body", wait: true,
	fails: []string{
		"once/concurrent", "once/instances-concurrent", "once/http2", "replay/body", "replay/body-binary",
		"replay/body-large", "replay/encoding", "mismatch/original-stays", "mismatch/whitespace", "scope/user-runs",
		"inflight/answer", "inflight/then-replay", "store/remembers", "crash/after-answer", "load/shuffled",
	},
	spoil: replays(func(answer *response) { answer.Body = nil }),
}, {
	name: "replay-null", about: "an empty body is stored as null",
	fails: []string{"replay/body-empty"},
	spoil: replays(func(answer *response) {
		if len(answer.Body) == 0 {
			answer.Body = []byte("null")
		}
	}),
}, {
	name: "replay-typed", about: "a replay without a body has a Content-Type, which is no defect",
	spoil: replays(func(answer *response) {
		if len(answer.Body) == 0 {
			answer.Header.Set("Content-Type", "text/plain")
		}
	}),
}, {
	name: "replay-empty-500", about: "an empty response is replayed as a 500", brief: true,
	fails: []string{"replay/answered"},
	spoil: replays(func(answer *response) {
		if len(answer.Body) == 0 {
			answer.Status = http.StatusInternalServerError
		}
	}),
}, {
	name: "replay-cut", about: "a body is stored up to 64 KiB",
	fails: []string{"replay/body-large"},
	spoil: replays(func(answer *response) { answer.Body = answer.Body[:min(len(answer.Body), 64<<10)] }),
}, {
	name: "replay-mangled", about: "a body is stored as UTF-8",
	fails: []string{"replay/body-binary"},
	spoil: replays(func(answer *response) { answer.Body = bytes.ToValidUTF8(answer.Body, []byte("\uFFFD")) }),
}, {
	name: "replay-reformatted", about: "a body is stored as a JSON value, and written anew", wait: true,
	fails: []string{
		"once/concurrent", "once/instances-concurrent", "once/http2", "replay/body", "replay/body-binary",
		"replay/body-large", "replay/encoding", "mismatch/original-stays", "mismatch/whitespace", "scope/user-runs",
		"inflight/answer", "inflight/then-replay", "store/remembers", "crash/after-answer", "load/shuffled",
	},
	spoil: replays(func(answer *response) { answer.Body = bytes.ReplaceAll(answer.Body, []byte(":"), []byte(": ")) }),
}, {
	name: "replay-without-location", about: "a replay has no Location",
	fails: []string{"replay/redirect", "replay/location", "replay/headers"},
	spoil: replays(func(answer *response) { answer.Header.Del("Location") }),
}, {
	name: "replay-without-type", about: "the Content-Type of a replay is guessed",
	fails: []string{"replay/content-type", "replay/headers"},
	spoil: replays(func(answer *response) { answer.Header.Del("Content-Type") }),
}, {
	name: "replay-without-etag", about: "only the common headers are stored",
	fails: []string{"replay/headers"},
	spoil: replays(func(answer *response) { answer.Header.Del("Etag") }),
}, {
	name: "replay-one-value", about: "of a header with several values the first is stored",
	fails: []string{"replay/headers-multiple"},
	spoil: replays(func(answer *response) {
		for name, values := range answer.Header {
			answer.Header[name] = values[:1]
		}
	}),
}, {
	name: "replay-joined", about: "the values of a header are joined without a comma",
	fails: []string{"replay/headers-multiple"},
	spoil: replays(func(answer *response) {
		for name, values := range answer.Header {
			answer.Header[name] = []string{strings.Join(values, " ")}
		}
	}),
}, {
	name: "replay-200", about: "a replay is always a 200", brief: true,
	fails: []string{"replay/status", "replay/redirect", "replay/error"},
	spoil: replays(func(answer *response) { answer.Status = http.StatusOK }),
}, {
	name: "replay-unmarked", about: "a replay does not say that it is one",
	fails: []string{"replay/marked"},
	spoil: replays(func(answer *response) { answer.Header.Del("Idempotent-Replayed") }),
}, {
	name: "first-marked", about: "the first response says that it is a replay",
	fails: []string{"replay/first-unmarked"},
	spoil: inside(func(s *server) {
		s.send = func(w http.ResponseWriter, answer *response) {
			if answer.Status < 300 {
				w.Header().Set("Idempotent-Replayed", "true")
			}
			send(w, answer)
		}
	}),
}, {
	name: "replay-dated", about: "a replay has the Date of the first response",
	fails: []string{"replay/date"},
	spoil: inside(func(s *server) {
		s.commit = func(c *claim, _ *http.Request, answer *response, made []payment) error {
			answer.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
			return s.store.commit(c, answer, made...)
		}
	}),
}, {
	name: "replay-sets-cookie", about: "a replay sets the cookie of the first response",
	fails: []string{"replay/no-cookie"},
	spoil: inside(func(s *server) {
		s.answer = func(w http.ResponseWriter, r *http.Request, found *record, print string) {
			if found.print == print && found.response != nil {
				w.Header()["Set-Cookie"] = found.response.Header["Set-Cookie"]
			}
			s.answerFor(w, r, found, print)
		}
	}),
}, {
	name: "replay-without-trailer", about: "trailers are not stored",
	fails: []string{"replay/trailers"},
	spoil: replays(func(answer *response) { answer.Trailer = nil }),
}, {
	name: "replay-encoding", about: "a compressed body is stored without its Content-Encoding",
	fails: []string{"replay/encoding"},
	spoil: inside(func(s *server) {
		s.commit = func(c *claim, r *http.Request, answer *response, made []payment) error {
			stored := *answer
			if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
				var packed bytes.Buffer
				z := gzip.NewWriter(&packed)
				_, _ = z.Write(answer.Body)
				_ = z.Close()
				stored.Body = packed.Bytes()
			}
			return s.store.commit(c, &stored, made...)
		}
	}),
}, {
	name: "replay-aged", about: "a replay has an Age",
	fails: []string{"cache/no-age"},
	spoil: replays(func(answer *response) { answer.Header.Set("Age", "1") }),
}, {
	name: "replay-another", about: "a replay has another payment's id", wait: true,
	fails: []string{
		"once/concurrent", "once/instances-concurrent", "once/http2", "replay/body", "replay/body-binary",
		"replay/body-large", "replay/encoding", "mismatch/original-stays", "mismatch/whitespace", "scope/user-runs",
		"inflight/answer", "inflight/then-replay", "store/remembers", "crash/after-answer", "load/shuffled",
	},
	spoil: replays(func(answer *response) {
		if id := bytes.Index(answer.Body, []byte(`"id":"`)); id >= 0 {
			answer.Body = append(bytes.Clone(answer.Body[:id+6]), append([]byte("???"), answer.Body[id+9:]...)...)
		}
	}),
}, {
	name: "body-ignored", about: "another body under the same key gets the stored response", brief: true,
	fails: []string{"mismatch/body", "mismatch/in-flight-status"},
	spoil: inside(func(s *server) {
		s.printOf = func(r *http.Request, _ []byte) string { return print(r, nil) }
	}),
}, {
	name: "body-ignored-waits", about: "another body under the same key waits, and gets the stored response", wait: true,
	fails: []string{"mismatch/body", "mismatch/in-flight"},
	spoil: inside(func(s *server) {
		s.printOf = func(r *http.Request, _ []byte) string { return print(r, nil) }
	}),
}, {
	name: "query-ignored", about: "another query under the same key gets the stored response",
	fails: []string{"mismatch/query"},
	spoil: inside(func(s *server) {
		s.printOf = func(r *http.Request, body []byte) string {
			copied := r.Clone(r.Context())
			copied.URL.RawQuery = ""
			return print(copied, body)
		}
	}),
}, {
	name: "method-ignored", about: "another method under the same key gets the stored response",
	fails: []string{"mismatch/method"},
	spoil: inside(func(s *server) {
		s.scopeOf = func(r *http.Request, key string) string {
			copied := r.Clone(r.Context())
			copied.Method = http.MethodPost
			return scope(copied, key)
		}
	}),
}, {
	name: "path-ignored", about: "another path under the same key gets the stored response",
	fails: []string{"mismatch/path", "scope/route"},
	spoil: inside(func(s *server) {
		s.scopeOf = func(r *http.Request, key string) string {
			copied := r.Clone(r.Context())
			copied.URL.Path = "/"
			return scope(copied, key)
		}
	}),
}, {
	name: "mismatch-runs", about: "another body under the same key runs",
	fails: []string{"mismatch/body", "mismatch/in-flight"},
	spoil: inside(func(s *server) {
		s.claim = func(scope, print string) (*claim, *record, error) { return s.store.claim(s.epoch, scope+print, print) }
	}),
}, {
	name: "mismatch-runs-too", about: "another body under the same key is refused, but after it has run",
	fails: []string{"mismatch/not-run", "mismatch/in-flight"},
	spoil: inside(func(s *server) {
		s.answer = func(w http.ResponseWriter, r *http.Request, found *record, print string) {
			if found.print != print {
				_ = s.store.pay(s.epoch, payment{ID: freshKey(), User: user(r)})
			}
			s.answerFor(w, r, found, print)
		}
	}),
}, {
	name: "mismatch-409", about: "another body under the same key gets 409",
	fails: []string{"mismatch/status", "mismatch/in-flight-status", "errors/says-retry"},
	spoil: inside(func(s *server) {
		s.problem = func(w http.ResponseWriter, status, retryAfter int, title string) {
			if status == http.StatusUnprocessableEntity {
				status = http.StatusConflict
			}
			problem(w, status, retryAfter, title)
		}
	}),
}, {
	name: "mismatch-frees", about: "another body under the same key is refused, and frees the key",
	fails: []string{"mismatch/original-stays"},
	spoil: inside(func(s *server) {
		s.claim = func(scope, print string) (*claim, *record, error) {
			mine, found, err := s.store.claim(s.epoch, scope, print)
			if found != nil && found.print != print && found.response != nil {
				s.store.forget(scope)
			}
			return mine, found, err
		}
	}),
}, {
	name: "mismatch-late", about: "another body is only noticed when the first request has ended; until then it gets 409",
	fails: []string{"mismatch/in-flight-status"},
	spoil: inside(func(s *server) {
		s.answer = func(w http.ResponseWriter, r *http.Request, found *record, print string) {
			if found.response == nil {
				print = found.print
			}
			s.answerFor(w, r, found, print)
		}
	}),
}, {
	name: "mismatch-leaks", about: "the refusal of another body shows the stored response", brief: true,
	fails: []string{"mismatch/leak"},
	spoil: inside(func(s *server) {
		s.answer = func(w http.ResponseWriter, r *http.Request, found *record, print string) {
			if found.print == print || found.response == nil {
				s.answerFor(w, r, found, print)
				return
			}
			answer := newProblem(http.StatusUnprocessableEntity, 0, "the key belongs to another request")
			answer.Body = append(bytes.TrimSuffix(answer.Body, []byte("}")), `,"stored":`...)
			answer.Body = append(append(answer.Body, found.response.Body...), '}')
			send(w, answer)
		}
	}),
}, {
	name: "user-ignored", about: "another user with the same key gets the stored response", brief: true,
	fails: []string{"scope/user", "scope/user-runs", "scope/user-in-flight"},
	spoil: inside(func(s *server) {
		s.scopeOf = func(r *http.Request, key string) string {
			copied := r.Clone(r.Context())
			copied.Header.Set("Authorization", "anybody")
			return scope(copied, key)
		}
	}),
}, {
	name: "leaks-later", about: "another user, and another route, get 409 for a moment after the response, and then the stored response", brief: true,
	fails: []string{"mismatch/path", "scope/user", "scope/user-runs", "scope/user-in-flight", "scope/route"},
	spoil: inside(func(s *server) {
		s.scopeOf = func(r *http.Request, key string) string { return fmt.Sprintf("%q %q", r.Method, key) }
		s.commit = func(c *claim, _ *http.Request, answer *response, made []payment) error {
			if err := s.store.keep(c, answer, made...); err != nil {
				return err
			}
			s.store.endLater(3*gap/2, c, answer)
			return nil
		}
	}),
}, {
	name: "user-compared", about: "another user with the same key is refused",
	fails: []string{"scope/user-runs", "scope/user-in-flight"},
	spoil: inside(func(s *server) {
		s.scopeOf = func(r *http.Request, key string) string {
			copied := r.Clone(r.Context())
			copied.Header.Set("Authorization", "anybody")
			return scope(copied, key)
		}
		s.printOf = func(r *http.Request, body []byte) string { return user(r) + print(r, body) }
	}),
}}
