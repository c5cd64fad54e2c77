package middleware

import (
	"net/http"
	"slices"
	"strings"
)

// change is one thing that a handler did to a header: the rest is the outer middlewares', and is today's on a replay.
type change struct {
	op     op
	name   string
	values []string // none with opSet is a nil value, which suppresses net/http's default
}

type op byte

const (
	opSet    op = iota // the field has these values
	opAdd              // the field has these values too, after those that it had
	opDelete           // the field is gone
	opEnd
)

// take returns h as it is now, as the changes that make it of an empty one.
func (s *scratch) take(h http.Header) []change {
	list, all := s.snapshot[:0], s.values[:0]
	for name, values := range h {
		start := len(all)
		all = append(all, values...)
		c := change{opSet, name, nil}
		if values != nil {
			c.values = all[start:len(all):len(all)]
		}
		list = append(list, c)
	}
	s.snapshot, s.values = list, all
	return list
}

// find returns where in a header that was taken the name is, -1 if it is not.
func find(header []change, name string) int {
	for i := range header {
		if header[i].name == name {
			return i
		}
	}
	return -1
}

func valuesOf(header []change, name string) []string {
	if i := find(header, name); i >= 0 {
		return header[i].values
	}
	return nil
}

// first returns the first value, empty if there is none.
func first(header []change, name string) string {
	if values := valuesOf(header, name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// unchanged tells whether h is still what was taken.
func unchanged(h http.Header, taken []change) bool {
	if len(h) != len(taken) {
		return false
	}
	for _, c := range taken {
		values, there := h[c.name]
		if !there || !slices.Equal(values, c.values) {
			return false
		}
	}
	return true
}

// changed returns what turned the header before into the one that was taken after.
func (s *scratch) changed(before http.Header, after []change) []change {
	list := s.changes[:0]
	for _, c := range after {
		old, existed := before[c.name]
		switch {
		case !existed:
			list = append(list, c)
		case slices.Equal(old, c.values):
		case len(old) < len(c.values) && slices.Equal(old, c.values[:len(old)]):
			list = append(list, change{opAdd, c.name, c.values[len(old):]})
		default:
			list = append(list, c)
		}
	}
	for name := range before {
		if find(after, name) < 0 {
			list = append(list, change{opDelete, name, nil})
		}
	}
	s.changes = list
	return list
}

// apply makes the changes to h.
func apply(h http.Header, changes []change) {
	for _, c := range changes {
		switch c.op {
		case opSet:
			h[c.name] = c.values
		case opAdd:
			h[c.name] = append(slices.Clip(h[c.name]), c.values...)
		case opDelete:
			delete(h, c.name)
		}
	}
}

// storable leaves out of the changes what belongs to one connection (RFC 9110 section 7.6.1, and the names that
// Connection lists), what each response says anew (Date, Age), and cookies unless they are asked for.
func (g *guard) storable(list []change, connection []string) (kept []change, cookiesDropped bool) {
	list = slices.DeleteFunc(list, func(c change) bool {
		name := http.CanonicalHeaderKey(c.name)
		return perResponse(name) && len(c.values) > 0 || perConnection(name) || listed(connection, name)
	})
	return g.withoutCookies(list)
}

// withoutCookies leaves out Set-Cookie, in a header or as a trailer, unless cookies are asked for.
func (g *guard) withoutCookies(list []change) (kept []change, dropped bool) {
	if g.cookies {
		return list, false
	}
	kept = slices.DeleteFunc(list, func(c change) bool {
		const cookie = "Set-Cookie"
		name := strings.TrimPrefix(c.name, http.TrailerPrefix)
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

// listed tells whether the field lines, each a comma-separated list, have the name.
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

// replace gives h the fields of other.
func replace(h, other http.Header) {
	clear(h)
	for name, values := range other {
		h[name] = values
	}
}

// replaceTrailers gives h, a header that was sent, the trailers of end. The rest stays as it was sent and stored: an
// outer writer may look at it only at the end, as that of [http.TimeoutHandler] does.
func replaceTrailers(h, end http.Header, announced []string) {
	for name := range h {
		if isTrailer(name, announced) {
			delete(h, name)
		}
	}
	for name, values := range end {
		if isTrailer(name, announced) {
			h[name] = values
		}
	}
}

// trailers returns what the handler left in the header at its end that is sent as a trailer: fields that it announced
// in Trailer before the body, and those with [http.TrailerPrefix]. What stood there before, as it is, is the outer
// middlewares'.
func trailers(announced []string, before, end http.Header) []change {
	var list []change
	for name, values := range end {
		if old, existed := before[name]; existed && slices.Equal(old, values) {
			continue
		}
		if isTrailer(name, announced) && len(values) > 0 {
			list = append(list, change{opSet, name, values})
		}
	}
	return list
}

// isTrailer tells whether the field of a header with these Trailer lines is sent as a trailer.
func isTrailer(name string, announced []string) bool {
	return strings.HasPrefix(name, http.TrailerPrefix) || listed(announced, name)
}

// announce puts the trailers of end that have [http.TrailerPrefix] into h, before it is sent. net/http leaves them out
// of the header, and room for them behind the body. If it learnt of them only afterwards, HTTP/1.1 would lose those of
// a body that fits its buffer, and it depends on the recorder which body does.
func announce(h, end http.Header) {
	for name, values := range end {
		if strings.HasPrefix(name, http.TrailerPrefix) && len(values) > 0 {
			h[name] = values
		}
	}
}
