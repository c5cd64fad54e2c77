package middleware_test

import (
	"encoding/binary"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// keyOfAge returns a key that was made so long ago: a UUID of version 7.
func keyOfAge(age time.Duration) string {
	id := uuid.Must(uuid.NewV7())
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(time.Now().Add(-age).UnixMilli()))
	copy(id[:6], ms[2:])
	return id.String()
}

func aged(age time.Duration) edit { return key(`"` + keyOfAge(age) + `"`) }

// young and old are the options of two sites on one Redis. A key that was made two hours ago runs only at the first.
func young(opts ...middleware.Option) []middleware.Option {
	return append(opts, middleware.WithKeyAge(3*time.Hour, headerKey))
}

func old(opts ...middleware.Option) []middleware.Option {
	return append(opts, middleware.WithKeyAge(time.Hour, headerKey))
}

// A key that is too old is answered from what is there, and otherwise refused. Redis stays as it is.
func TestKeyAge(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		g := newGate()
		runs := serve(t, b, behind(t, g, payOnce()), young()...)
		refuses := serve(t, b, payOnce(), old()...)
		stale := aged(2 * time.Hour)
		refused := func(edits ...edit) {
			t.Helper()
			a := refuses.send(edits...)
			e := refuses.wantRefused(a, http.StatusBadRequest, middleware.ExpiredKey, "key-expired")
			if e.Err != nil || e.Claim.Start.IsZero() || a.header.Get("X-Should-Retry") != "false" || a.header.Get("Retry-After") != "" {
				t.Errorf("%+v, %v", e, a.header)
			}
			if keys := b.Keys(t); len(keys) != 0 {
				t.Errorf("keys %q, want none", keys)
			}
		}
		refused(stale)
		refused(stale) // as before: the first refusal has left nothing

		done := runs.inBackground(g, stale)
		refuses.wantRefused(refuses.send(stale), http.StatusConflict, middleware.InFlight, "in-flight")
		other := body("application/json", "{}")
		refuses.wantRefused(refuses.send(stale, other), http.StatusUnprocessableEntity, middleware.Reused, "key-reused")
		close(g.open)
		runs.want(<-done, http.StatusCreated, middleware.Executed)
		first := runs.send(stale)
		runs.want(first, http.StatusCreated, middleware.Replayed)
		a := refuses.send(stale)
		refuses.want(a, http.StatusCreated, middleware.Replayed)
		if a.body != first.body || !a.replayed() {
			t.Errorf("got %q, want the replay of %q", a.body, first.body)
		}
		refuses.wantRefused(refuses.send(stale, other), http.StatusUnprocessableEntity, middleware.Reused, "key-reused")
		b.FlushAll(t)
		refused(stale)
		refuses.wantRuns(0)
		runs.wantRuns(1)
	})
}

// Which keys are checked, and by how much. A minute is left for a slow machine.
func TestWhichKeysAreTooOld(t *testing.T) {
	t.Parallel()
	b := redistest.Mini(t)
	part := keyfunc.First(headerKey, keyfunc.Query("key"))
	s := serveKeyed(t, newLocker(t, b.Client(t)), keyfunc.First(headerKey, keyfunc.Query("key"), keyfunc.Query("other")), payOnce(),
		middleware.WithKeyAge(time.Hour, part))
	quoted := func(k string) edit { return key(`"` + k + `"`) }
	stale := keyOfAge(2 * time.Hour)
	v4 := []byte(stale)
	v4[14] = '4'
	reserved := []byte(stale)
	reserved[19] = 'c' // the variant
	for name, test := range map[string]struct {
		edits []edit
		want  middleware.Outcome
	}{
		"new":                              {[]edit{aged(0)}, middleware.Executed},
		"young enough":                     {[]edit{aged(59 * time.Minute)}, middleware.Executed},
		"too old":                          {[]edit{aged(time.Hour + time.Millisecond)}, middleware.ExpiredKey},
		"the oldest":                       {[]edit{quoted("00000000-0000-7000-8000-000000000000")}, middleware.ExpiredKey},
		"in capitals":                      {[]edit{quoted(strings.ToUpper(stale))}, middleware.ExpiredKey},
		"without quotes":                   {[]edit{key(stale)}, middleware.ExpiredKey},
		"from the second place":            {[]edit{noKey, target("/payments?key=" + stale)}, middleware.ExpiredKey},
		"from a place that is not checked": {[]edit{noKey, target("/payments?other=" + stale)}, middleware.Executed},
		"a little in the future":           {[]edit{aged(-59 * time.Minute)}, middleware.Executed},
		"in the future":                    {[]edit{aged(-61 * time.Minute)}, middleware.InvalidKey},
		"the last":                         {[]edit{quoted("ffffffff-ffff-7fff-bfff-ffffffffffff")}, middleware.InvalidKey},
		"version 4":                        {[]edit{quoted(string(v4))}, middleware.Executed},
		"another variant":                  {[]edit{quoted(string(reserved))}, middleware.Executed},
		"in braces":                        {[]edit{quoted("{" + stale + "}")}, middleware.Executed},
		"a URN":                            {[]edit{quoted("urn:uuid:" + stale)}, middleware.Executed},
		"no hyphens":                       {[]edit{quoted(strings.ReplaceAll(stale, "-", ""))}, middleware.Executed},
		"not hexadecimal":                  {[]edit{quoted("g" + stale[1:])}, middleware.Executed},
		"another text":                     {[]edit{quoted("order 7")}, middleware.Executed},
	} {
		a := s.send(test.edits...)
		e := s.event()
		if e.Outcome != test.want {
			t.Errorf("%s: %s, %+v, want %s", name, e.Outcome, a, test.want)
		}
		if test.want == middleware.InvalidKey && (a.problem() != "key-invalid" || !strings.Contains(a.detail(t), "in the future") || !errors.Is(e.Err, keyfunc.ErrInvalid)) {
			t.Errorf("%s: %s, %v", name, a.body, e.Err)
		}
		b.FlushAll(t)
	}
}

// A key that may run still has its response: also one that was made in the future.
func TestResponsesOutliveTheAge(t *testing.T) {
	t.Parallel()
	for retention, want := range map[time.Duration]time.Duration{
		time.Hour:                 2 * time.Hour,
		2*time.Hour - time.Second: 2 * time.Hour,
		3 * time.Hour:             3 * time.Hour,
	} {
		b := redistest.Mini(t)
		s := serve(t, b, payOnce(), old(middleware.WithRetention(retention))...)
		s.want(s.send(aged(-59*time.Minute)), http.StatusCreated, middleware.Executed)
		info, err := s.locker.Inspect(t.Context(), b.Keys(t)[0])
		if err != nil || info.TTL > want || info.TTL < want-time.Minute {
			t.Errorf("kept for %v, %v, want %v", info.TTL, err, want)
		}
	}
}
