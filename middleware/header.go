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

// changes returns what turned the header before into the header after.
func changes(before, after http.Header) []change {
	list := make([]change, 0, len(after))
	for name, values := range after {
		old, existed := before[name]
		switch {
		case !existed:
			list = append(list, change{opSet, name, values})
		case slices.Equal(old, values):
		case len(old) < len(values) && slices.Equal(old, values[:len(old)]):
			list = append(list, change{opAdd, name, values[len(old):]})
		default:
			list = append(list, change{opSet, name, values})
		}
	}
	for name := range before {
		if _, kept := after[name]; !kept {
			list = append(list, change{opDelete, name, nil})
		}
	}
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
		return http.CanonicalHeaderKey(strings.TrimPrefix(c.name, http.TrailerPrefix)) == "Set-Cookie"
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

// trailers returns what the handler left in the header at its end that is sent as a trailer: fields that it announced
// in Trailer before the body, and those with [http.TrailerPrefix].
func trailers(announced []string, end http.Header) []change {
	var list []change
	for name, values := range end {
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
