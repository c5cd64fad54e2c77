package operate

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"strings"

	"github.com/onceguard/onceguard/keyfunc"
)

// requestFlags are what the customer sent. They are given instead of KEY.
type requestFlags struct {
	user                    []string // one part, or those of a scope in the order of keyfunc.Compose
	method, path, key, host string
	anonymous, noRoute      bool
}

// isGiven reports whether any of the flags was given.
func (r *requestFlags) isGiven() bool {
	return len(r.user) > 0 || r.anonymous || r.noRoute || r.method+r.path+r.key+r.host != ""
}

func (r *requestFlags) flags(set *flag.FlagSet) {
	set.Func("user", "the user's `id`, in place of KEY; once for each part of a scope that "+
		"keyfunc.Compose joins, such as tenant and user", func(part string) error {
		if part == "" {
			return errors.New("want one that is not empty")
		}
		r.user = append(r.user, part)
		return nil
	})
	set.StringVar(&r.host, "host", "", "the `host` that the client asked for, if keyfunc.Host is a part of the key")
	set.BoolVar(&r.anonymous, "anonymous", false, "the user is keyfunc.Anonymous")
	set.StringVar(&r.method, "method", "", "the request's `method` (default: POST)")
	set.StringVar(&r.path, "path", "", "the request's `path`, as the client sent it")
	set.BoolVar(&r.noRoute, "no-route", false, "the key has neither method nor path, as with profile.Stripe")
	set.StringVar(&r.key, "key", "", "the `content` of the Idempotency-Key header, without quotes; "+
		"for keyfunc.Opaque, as in package profile, as the client sent it")
}

// check returns an error if a flag of the request is missing.
func (r *requestFlags) check() error {
	switch {
	case (len(r.user) == 0) != r.anonymous:
		return UsageError("want either -user or -anonymous")
	case r.noRoute && r.method+r.path != "":
		return UsageError("-no-route: give neither -method nor -path")
	case !r.noRoute && !strings.HasPrefix(r.path, "/"):
		return UsageError("-path: want a path that begins with /, or -no-route")
	case r.key == "":
		return UsageError("-key is missing")
	case r.method == "":
		r.method = http.MethodPost
	}
	r.method, r.host = strings.ToUpper(r.method), strings.ToLower(r.host)
	return nil
}

// derive returns the key of a request: of keyfunc.Standard or, without a route, of Compose(key, user). With a host it is
// that of Compose of this and of Host.
func (r *requestFlags) derive() (string, error) {
	var user string
	var err error
	switch {
	case r.anonymous:
		user, err = keyfunc.Anonymous()(nil)
	case len(r.user) == 1:
		user = r.user[0]
	default:
		user = keyfunc.ComposedKey(r.user...)
	}
	key := keyfunc.StandardKey(user, r.method, r.path, r.key)
	if r.noRoute {
		key = keyfunc.ComposedKey(r.key, user)
	}
	if r.host != "" {
		key = keyfunc.ComposedKey(key, r.host)
	}
	return key, err
}

// count returns how many of them are true.
func count(all ...bool) (n int) {
	for _, is := range all {
		if is {
			n++
		}
	}
	return n
}

// findKey sets the session's key, and the namespace if the key has one in front.
func (s *session) findKey(args []string) error {
	ways := count(len(args) > 0, s.request.isGiven(), s.lock != "", s.change.list != "")
	switch {
	case !s.takesKey() && len(args) > 0:
		return UsageError("want no argument, got %d", len(args))
	case !s.takesKey():
		return nil
	case ways != 1 || len(args) > 1:
		return UsageError("want one KEY, or -user, -method, -path and -key, or -lock or -list, but only one of them")
	case s.request.isGiven():
		return s.request.check()
	case len(args) == 0:
		return nil
	case args[0] == "":
		return UsageError("KEY is empty")
	}
	s.key = args[0]
	if namespace, _, ok := strings.Cut(s.key, ":{"); ok && s.namespace == "" {
		s.namespace = namespace
	}
	return nil
}

// storageKey returns the command's key, in a form that the locker accepts.
func (s *session) storageKey() (string, error) {
	switch {
	case s.key != "":
		return s.key, nil
	case s.lock != "":
		return s.locker.StorageKey(s.lock), nil
	}
	key, err := s.request.derive()
	return s.locker.StorageKey(key), err
}

// madeOf returns what the key was made of. It leaves out the content of the Idempotency-Key header: with
// keyfunc.Anonymous, any client that sends it gets the stored response.
func (s *session) madeOf() string {
	r, text := &s.request, fmt.Sprintf("-namespace %q", s.namespace)
	add := func(name, value string) {
		if value != "" {
			text += fmt.Sprintf(" -%s %q", name, value)
		}
	}
	add("lock", s.lock)
	for _, part := range r.user {
		add("user", part)
	}
	add("host", r.host)
	path, _, _ := strings.Cut(r.path, "?")
	if path != "" {
		add("method", r.method)
	}
	add("path", path)
	return text
}
