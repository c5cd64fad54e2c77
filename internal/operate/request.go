package operate

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"strings"

	"github.com/onceguard/onceguard/keyfunc"
)

// requestFlags are what the customer sent. They are given instead of KEY.
type requestFlags struct {
	user                    parts // one part, or those of a scope in the order of keyfunc.Compose
	method, path, key, host string
	anonymous, noRoute      bool
}

// isGiven reports whether any of the flags was given.
func (r *requestFlags) isGiven() bool {
	return len(r.user) > 0 || r.anonymous || r.host != "" || r.method != "" || r.path != "" || r.noRoute || r.key != ""
}

func (r *requestFlags) flags(set *flag.FlagSet) {
	set.Var(&r.user, "user", "the user's `id`, in place of KEY; once for each part of a scope that keyfunc.Compose joins, such as tenant and user")
	set.Var((*filled)(&r.host), "host", "the `host` that the client asked for, if keyfunc.Host is a part of the key")
	set.BoolVar(&r.anonymous, "anonymous", false, "the user is keyfunc.Anonymous")
	set.Var((*filled)(&r.method), "method", "the request's `method` (default: POST)")
	set.Var((*filled)(&r.path), "path", "the request's `path`, as the client sent it")
	set.BoolVar(&r.noRoute, "no-route", false, "the key has neither method nor path, as with profile.Stripe")
	set.Var((*filled)(&r.key), "key", "the `content` of the Idempotency-Key header, without quotes; for keyfunc.Opaque, as in package profile, as the client sent it")
}

// check returns an error if a flag of the request is missing.
func (r *requestFlags) check(namespace string) error {
	switch {
	case namespace == "":
		return usagef("-namespace is missing")
	case (len(r.user) == 0) != r.anonymous:
		return usagef("want either -user or -anonymous")
	case r.noRoute && (r.method != "" || r.path != ""):
		return usagef("-no-route: give neither -method nor -path")
	case !r.noRoute && !strings.HasPrefix(r.path, "/"):
		return usagef("-path: want a path that begins with /, or -no-route")
	case r.key == "":
		return usagef("-key is missing")
	}
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
	key := keyfunc.StandardKey(user, r.upperMethod(), r.path, r.key)
	if r.noRoute {
		key = keyfunc.ComposedKey(r.key, user)
	}
	if r.host != "" {
		key = keyfunc.ComposedKey(key, strings.ToLower(r.host))
	}
	return key, err
}

func (r *requestFlags) upperMethod() string {
	return strings.ToUpper(cmp.Or(r.method, http.MethodPost))
}

// String returns what a key is made of. It leaves out the content of the Idempotency-Key header: with keyfunc.Anonymous, any
// client that sends it gets the stored response.
func (r requestFlags) String() string {
	user := "no user (-anonymous)"
	for i, part := range r.user {
		if i == 0 {
			user = "user"
		}
		user += fmt.Sprintf(" %q", part)
	}
	path, _, _ := strings.Cut(r.path, "?")
	text := fmt.Sprintf("%s, method %q, path %q", user, r.upperMethod(), path)
	if r.noRoute {
		text = user + ", no route (-no-route)"
	}
	if r.host != "" {
		text += fmt.Sprintf(", host %q", strings.ToLower(r.host))
	}
	return text
}

// parts is a flag that may be given several times.
type parts []string

func (p *parts) String() string { return strings.Join(*p, " ") }

func (p *parts) Set(part string) error {
	if part == "" {
		return errEmpty
	}
	*p = append(*p, part)
	return nil
}

// filled is a flag that names a part of the key. It must not be empty: then a variable of the operator's script is not
// set, and the rest makes another key.
type filled string

func (f *filled) String() string { return string(*f) }

func (f *filled) Set(value string) error {
	if value == "" {
		return errEmpty
	}
	*f = filled(value)
	return nil
}

var errEmpty = errors.New("want one that is not empty")
