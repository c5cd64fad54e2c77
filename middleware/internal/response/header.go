package response

import (
	"net/http"
	"slices"
	"strings"
)

// Change is one thing that a handler did to a header: the rest is the outer middlewares', and is today's on a replay.
type Change struct {
	Op     Op
	Name   string
	Values []string // none with OpSet is a nil value, which suppresses net/http's default
}

// Op is what a Change does.
type Op byte

const (
	OpSet    Op = iota // the field has these values
	OpAdd              // the field has these values too, after those that it had
	OpDelete           // the field is gone
	OpEnd
)

// Take returns h as it is now, as the changes that make it of an empty one.
func (s *Scratch) Take(h http.Header) []Change {
	list, all := s.snapshot[:0], s.values[:0]
	for name, values := range h {
		start := len(all)
		all = append(all, values...)
		c := Change{OpSet, name, nil}
		if values != nil {
			c.Values = all[start:len(all):len(all)]
		}
		list = append(list, c)
	}
	s.snapshot, s.values = list, all
	return list
}

// Find returns where in a header that was taken the name is, -1 if it is not.
func Find(header []Change, name string) int {
	for i := range header {
		if header[i].Name == name {
			return i
		}
	}
	return -1
}

func ValuesOf(header []Change, name string) []string {
	if i := Find(header, name); i >= 0 {
		return header[i].Values
	}
	return nil
}

// First returns the first value, empty if there is none.
func First(header []Change, name string) string {
	if values := ValuesOf(header, name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// Unchanged reports whether h is still what was taken.
func Unchanged(h http.Header, taken []Change) bool {
	if len(h) != len(taken) {
		return false
	}
	for _, c := range taken {
		values, there := h[c.Name]
		if !there || !slices.Equal(values, c.Values) {
			return false
		}
	}
	return true
}

// Changed returns what turned the header before into the one that was taken after.
func (s *Scratch) Changed(before http.Header, after []Change) []Change {
	list := s.Changes[:0]
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
	s.Changes = list
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

// Storable leaves out of the changes what belongs to one connection (RFC 9110 section 7.6.1, and the names that
// Connection lists), what each response says anew (Date, Age), and cookies unless they are asked for.
func Storable(list []Change, connection []string, cookies bool) (kept []Change, cookiesDropped bool) {
	list = slices.DeleteFunc(list, func(c Change) bool {
		name := http.CanonicalHeaderKey(c.Name)
		return perResponse(name) && len(c.Values) > 0 || perConnection(name) || listed(connection, name)
	})
	return WithoutCookies(list, cookies)
}

// WithoutCookies leaves out Set-Cookie, in a header or as a trailer, unless cookies are asked for.
func WithoutCookies(list []Change, cookies bool) (kept []Change, dropped bool) {
	if cookies {
		return list, false
	}
	kept = slices.DeleteFunc(list, func(c Change) bool {
		const cookie = "Set-Cookie"
		name := strings.TrimPrefix(c.Name, http.TrailerPrefix)
		return len(name) == len(cookie) && http.CanonicalHeaderKey(name) == cookie
	})
	return kept, len(kept) < len(list)
}

// perResponse names what is made anew for each response. A nil value among them is the handler's wish to have none.
func perResponse(name string) bool {
	switch name {
	case "Date", "Age":
		return true
	}
	return false
}

func perConnection(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Te", "Transfer-Encoding", "Upgrade":
		return true
	}
	return strings.HasPrefix(name, "Proxy-")
}

// listed reports whether the field lines, each a comma-separated list, have the name.
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

// Replace gives h the fields of other.
func Replace(h, other http.Header) {
	clear(h)
	for name, values := range other {
		h[name] = values
	}
}

// ReplaceTrailers gives h, a header that was sent, the trailers of end. The rest stays as it was sent and stored: an
// outer writer may look at it only at the end, as that of [http.TimeoutHandler] does.
func ReplaceTrailers(h, end http.Header, announced []string) {
	for name := range h {
		if IsTrailer(name, announced) {
			delete(h, name)
		}
	}
	for name, values := range end {
		if IsTrailer(name, announced) {
			h[name] = values
		}
	}
}

// Trailers returns what the handler left in the header at its end that is sent as a trailer: fields that it announced
// in Trailer before the body, and those with [http.TrailerPrefix]. What stood there before, as it is, is the outer
// middlewares'.
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

// IsTrailer reports whether the field of a header with these Trailer lines is sent as a trailer.
func IsTrailer(name string, announced []string) bool {
	return strings.HasPrefix(name, http.TrailerPrefix) || listed(announced, name)
}

// Announce puts the trailers of end that have [http.TrailerPrefix] into h, before it is sent. net/http leaves them out
// of the header, and room for them behind the body. If it learnt of them only afterwards, HTTP/1.1 would lose those of
// a body that fits its buffer, and it depends on the writer which body does.
func Announce(h, end http.Header) {
	for name, values := range end {
		if strings.HasPrefix(name, http.TrailerPrefix) && len(values) > 0 {
			h[name] = values
		}
	}
}
