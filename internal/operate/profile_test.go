package operate

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/profile"
)

// fault: the client of a profile has sent its key in quotes, which are part of an opaque key. Expected: inspect finds the
// key as the client sent it, and the help says so.
// fault: the key has no route, as with profile.Stripe. Expected: -no-route finds it, and no route is made up or ignored.
func TestInspectOfAProfile(t *testing.T) {
	t.Parallel()
	mini := redistest.Mini(t)
	s := open(t, mini.Client(t), "redis://"+mini.Addr(), func(d time.Duration) { mini.Elapse(t, d) })
	for _, c := range []struct {
		profile profile.Profile
		user    string
		flags   []string
	}{
		{profile.ACP(), "acp", []string{"-path=/payments"}},
		{profile.UCP(), "ucp", []string{"-path=/payments"}},
		{profile.Stripe(), "stripe", []string{"-no-route"}},
	} {
		handler := middleware.Idempotency(s.locker, c.profile.Key(keyfunc.BasicUser()), c.profile.Option())(
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body))
		r.SetBasicAuth(c.user, "")
		r.Header.Set("Idempotency-Key", `"k1"`)
		handler.ServeHTTP(httptest.NewRecorder(), r)

		args := append([]string{"inspect", "-namespace=shop", "-user=" + c.user}, c.flags...)
		s.run(append(args, `-key="k1"`)...).want(t, exitDone, "settled: retries get the stored response", "status 201")
		s.run(append(args, `-key=k1`)...).want(t, exitFree)
	}
	request := []string{"inspect", "-namespace=shop", "-user=stripe", `-key="k1"`}
	s.run(append(request, "-no-route")...).want(t, exitDone, `made of  namespace "shop", user "stripe", no route (-no-route), and -key`)
	s.run(append(request, "-no-route", "-path=/payments")...).want(t, exitUsage, "-no-route: give neither -method nor -path")
	s.run(append(request, "-no-route", "-method=POST")...).want(t, exitUsage, "-no-route: give neither -method nor -path")
	s.run(request...).want(t, exitUsage, "-path: want a path that begins with /, or -no-route")
	s.run("inspect", "-no-route", s.locker.StorageKey("k")).want(t, exitUsage, "only one of them")
	s.run("inspect", "-method=PUT", s.locker.StorageKey("k")).want(t, exitUsage, "only one of them")
	s.run("inspect", "-help").want(t, exitDone, "for keyfunc.Opaque, as in package profile, as the client sent it")
}
