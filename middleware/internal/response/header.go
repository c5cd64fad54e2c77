package response

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Change is one change that a handler made to a header. Only changes are stored: in a replay the outer middlewares set
// the rest.
type Change struct {
	Op     Op
	Name   string
	Values []string // with OpSet, nil suppresses net/http's default
}

// Op is what a Change does.
type Op byte

const (
	OpSet    Op = iota // sets the field to Values
	OpAdd              // appends Values to those of the field
	OpDelete           // deletes the field
	opEnd              // not an Op, but the number of them
)

// Snapshot returns the changes that turn an empty header into h. Later changes of h do not change them.
func Snapshot(h http.Header) []Change {
	list := make([]Change, 0, len(h)+1)
	for name, values := range h {
		list = append(list, Change{OpSet, name, slices.Clone(values)})
	}
	return list
}

// Find returns the index of the field in a Snapshot, or -1.
func Find(header []Change, name string) int {
	return slices.IndexFunc(header, func(c Change) bool { return c.Name == name })
}

// ValuesOf returns the values of the field in a Snapshot, nil if it has none.
func ValuesOf(header []Change, name string) []string {
	if i := Find(header, name); i >= 0 {
		return header[i].Values
	}
	return nil
}

// First returns the first value of the field in a Snapshot, "" if it has none.
func First(header []Change, name string) string {
	if values := ValuesOf(header, name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// Changed returns the changes that turn before into after, which is a Snapshot.
func Changed(before http.Header, after []Change) (list []Change) {
	for _, c := range after {
		old, existed := before[c.Name]
		switch {
		case !existed:
			list = append(list, c)
		case slices.Equal(old, c.Values):
		case len(old) < len(c.Values) && slices.Equal(old, c.Values[:len(old)]):
			list = append(list, Change{OpAdd, c.Name, c.Values[len(old):]})
		default:
			list = append(list, c)
		}
	}
	for name := range before {
		if Find(after, name) < 0 {
			list = append(list, Change{OpDelete, name, nil})
		}
	}
	return list
}

// Apply makes the changes to h.
func Apply(h http.Header, changes []Change) {
	for _, c := range changes {
		switch c.Op {
		case OpSet:
			h[c.Name] = c.Values
		case OpAdd:
			h[c.Name] = append(slices.Clip(h[c.Name]), c.Values...)
		case OpDelete:
			delete(h, c.Name)
		}
	}
}

// Storable removes from list what is not replayed: the fields of one connection (RFC 9110 section 7.6.1), which include
// those that connection, the values of Connection, lists; Date and Age, which each response has anew; and Set-Cookie,
// unless keepCookies is set.
func Storable(list []Change, connection []string, keepCookies bool) (kept []Change, cookiesDropped bool) {
	list = slices.DeleteFunc(list, func(c Change) bool {
		name := http.CanonicalHeaderKey(c.Name)
		if isPerResponse(name) && len(c.Values) > 0 { // without values the handler has suppressed the field, which is replayed
			return true
		}
		return isPerConnection(name) || listed(connection, name)
	})
	return WithoutCookies(list, keepCookies)
}

// WithoutCookies removes Set-Cookie, as a header or a trailer, unless keepCookies is set.
func WithoutCookies(list []Change, keepCookies bool) (kept []Change, dropped bool) {
	if keepCookies {
		return list, false
	}
	kept = slices.DeleteFunc(list, func(c Change) bool {
		return strings.EqualFold(strings.TrimPrefix(c.Name, http.TrailerPrefix), "Set-Cookie")
	})
	return kept, len(kept) < len(list)
}

func isPerResponse(name string) bool { return name == "Date" || name == "Age" }

func isPerConnection(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Te", "Transfer-Encoding", "Upgrade":
		return true
	}
	return strings.HasPrefix(name, "Proxy-")
}

// listed reports whether name is in the field lines, each a comma-separated list.
func listed(lines []string, name string) bool {
	for _, line := range lines {
		for element := range strings.SplitSeq(line, ",") {
			if http.CanonicalHeaderKey(strings.TrimSpace(element)) == name {
				return true
			}
		}
	}
	return false
}

// Replace replaces all fields of h with those of other.
func Replace(h, other http.Header) {
	clear(h)
	maps.Copy(h, other)
}

// ReplaceTrailers replaces the trailers of h, a header that was sent, with those of end. The other fields stay as they
// were sent, because an outer writer, such as that of [http.TimeoutHandler], may read them only at the end.
func ReplaceTrailers(h, end http.Header, announced []string) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return IsTrailer(name, announced) })
	for name, values := range end {
		if IsTrailer(name, announced) {
			h[name] = values
		}
	}
}

// Trailers returns the fields of end, the header as the handler left it, that are sent as trailers: those announced in
// Trailer before the body, and those with [http.TrailerPrefix]. It omits fields that are as in before, because the
// handler did not set them.
func Trailers(announced []string, before, end http.Header) []Change {
	var list []Change
	for name, values := range end {
		if old, existed := before[name]; existed && slices.Equal(old, values) {
			continue
		}
		if IsTrailer(name, announced) && len(values) > 0 {
			list = append(list, Change{OpSet, name, values})
		}
	}
	return list
}

// IsTrailer reports whether the field name is sent as a trailer, in a header whose Trailer lines are announced.
func IsTrailer(name string, announced []string) bool {
	return strings.HasPrefix(name, http.TrailerPrefix) || listed(announced, name)
}

// Announce copies the trailers of end that have [http.TrailerPrefix] into h before h is sent, so that net/http expects
// trailers after the body. Otherwise HTTP/1.1 would lose the trailers of a body that fits into net/http's buffer.
func Announce(h, end http.Header) {
	for name, values := range end {
		if strings.HasPrefix(name, http.TrailerPrefix) && len(values) > 0 {
			h[name] = values
		}
	}
}
