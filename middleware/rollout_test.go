package middleware_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// During a rollout instances with an option and without it share keys. The table has what one of them answers to a
// repetition of a request that the other one runs, has completed, or has left without an outcome. docs/rollout.md lists the
// options that need care.
func TestInstancesWithAndWithoutAnOption(t *testing.T) {
	t.Parallel()
	secret := []byte("0123456789abcdef0123456789abcdef")
	const (
		runs    = "runs"
		replays = "replays"
	)
	type answers struct{ running, completed, unknown string } // a problem's type, or one of the two
	same := answers{"in-flight", replays, runs}
	for name, test := range map[string]struct {
		option  middleware.Option
		without answers // of the instance without the option, to what the one with it has left
		with    answers // the other way round
	}{
		"no option":       {without: same, with: same},
		"WithCompression": {option: middleware.WithCompression(0), without: same, with: same},
		"WithKeyAge":      {option: middleware.WithKeyAge(time.Hour, headerKey), without: same, with: same},
		"WithEncryption": {
			option:  middleware.WithEncryption(secret),
			without: answers{"record-unreadable", "record-unreadable", runs},
			with:    answers{"record-unreadable", "record-unreadable", runs},
		},
		"WithFingerprint": {
			option:  middleware.WithFingerprint("amount", func(_ *http.Request, body []byte) []byte { return body }),
			without: answers{"in-flight", "fingerprint-changed", runs},
			with:    answers{"in-flight", "fingerprint-changed", runs},
		},
		"WithAtMostOnce": {
			option:  middleware.WithAtMostOnce(),
			without: answers{"in-flight", replays, "outcome-unknown"},
			with:    same,
		},
		"WithShadow": {
			option:  middleware.WithShadow(),
			without: answers{runs, runs, runs},
			with:    answers{runs, runs, runs},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, direction := range []struct {
				name  string
				first bool // the first request goes to the instance with the option
				want  answers
			}{{"without it", true, test.without}, {"with it", false, test.with}} {
				t.Run(direction.name, func(t *testing.T) {
					t.Parallel()
					b := redistest.Mini(t)
					g := newGate()
					instance := func(has bool) *site {
						var opts []middleware.Option
						if has && test.option != nil {
							opts = append(opts, test.option)
						}
						return serveOn(t, newLocker(t, b.Client(t)), func(w http.ResponseWriter, r *http.Request) {
							switch r.Header.Get("X-Test") {
							case "held":
								g.pass()
							case "dies":
								panic(http.ErrAbortHandler)
							}
							w.WriteHeader(201)
						}, opts...)
					}
					first, second := instance(direction.first), instance(!direction.first)
					check := func(when, want string) {
						t.Helper()
						before := second.runs.Load()
						a := second.send(key(when))
						got := a.problem()
						if a.status == 201 && second.runs.Load() == before+1 {
							got = runs
						} else if a.replayed() {
							got = replays
						}
						if got != want {
							t.Errorf("%s: %s (%d), want %s", when, got, a.status, want)
						}
					}
					done := first.inBackground(g, key("running"), header("X-Test", "held"))
					check("running", direction.want.running)
					close(g.open)
					<-done

					first.send(key("completed"))
					check("completed", direction.want.completed)

					_, _ = first.try(first.request(key("unknown"), header("X-Test", "dies"), noRetry))
					b.Elapse(t, 11*time.Second)
					check("unknown", direction.want.unknown)
				})
			}
		})
	}
}
