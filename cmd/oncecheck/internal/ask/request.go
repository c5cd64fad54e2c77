package ask

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Operation is one intent of a customer: one payment. Its repetitions have the same values.
type Operation struct {
	N    int64  // {{n}}: differs from operation to operation
	Key  string // {{key}}: the idempotency key, a random UUID
	UUID string // {{uuid}}: another random UUID
}

// Expand replaces {{n}}, {{key}} and {{uuid}}.
func (o Operation) Expand(template string) string {
	return strings.NewReplacer("{{n}}", strconv.FormatInt(o.N, 10), "{{key}}", o.Key, "{{uuid}}", o.UUID).Replace(template)
}

// placeholder matches what looks like one. JSON may have braces of its own.
var placeholder = regexp.MustCompile(`\{\{([A-Za-z_ ]+)\}\}`)

// CheckTemplate returns an error if the template has a placeholder that does not exist.
func CheckTemplate(template string) error {
	for _, found := range placeholder.FindAllStringSubmatch(template, -1) {
		if !slices.Contains([]string{"n", "key", "uuid"}, found[1]) {
			return fmt.Errorf("%s is no placeholder: there are {{n}}, {{key}} and {{uuid}}", found[0])
		}
	}
	return nil
}

// UUID returns a random UUID of version 4. It does not depend on the seed of a run: keys are never used again.
func UUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Field is one header line. Name and value are sent as they are.
type Field struct {
	Name, Value string
	// The shell's, which stands for the value in a report; empty: everybody may see the value.
	Variable string
}

// Request is a request as it goes over the wire.
type Request struct {
	Op     Operation // whose request it is
	Method string
	URL    *url.URL
	Header []Field
	Body   []byte

	// For the reader of a report:
	Note   string // what is special
	AtOnce bool   // sent at one instant with its neighbours
	Runs   bool   // still runs when the next is sent
	Before string // commands for sh that were run before it
	After  string // and after it

	// The client does not wait any longer for an answer; 0: it got one.
	Leaves time.Duration
	// For how long the same had been sent before, with another answer.
	Waited time.Duration
}

// With returns a copy with the header line, in place of the lines of that name.
func (r Request) With(name, value string) Request {
	r = r.Without(name)
	r.Header = append(r.Header, Field{Name: name, Value: value})
	return r
}

// Without returns a copy without the header lines of that name.
func (r Request) Without(name string) Request {
	has := func(f Field) bool { return strings.EqualFold(f.Name, name) }
	r.Header = slices.DeleteFunc(slices.Clone(r.Header), has)
	return r
}

// Query returns a copy whose URL has the query added to its own.
func (r Request) Query(query string) Request {
	u := *r.URL
	if u.RawQuery != "" && query != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += query
	r.URL = &u
	return r
}

// Bare returns a request of the method to the same URL, with the same headers and no body.
func (r Request) Bare(method string) Request {
	r = r.Without("Content-Type")
	r.Method, r.Body = method, nil
	return r
}

// encode returns the request in HTTP/1.1.
func (r Request) encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.Method, r.URL.RequestURI(), r.URL.Host)
	b.WriteString("User-Agent: oncecheck\r\nAccept: */*\r\n")
	for _, f := range r.Header {
		fmt.Fprintf(&b, "%s: %s\r\n", f.Name, f.Value)
	}
	if len(r.Body) > 0 || r.Method != http.MethodGet {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(r.Body))
	}
	b.WriteString("\r\n")
	b.Write(r.Body)
	return b.Bytes()
}

// Response is what came back.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Text returns the header and the body.
func (r *Response) Text() string {
	var b strings.Builder
	_ = r.Header.Write(&b) // into memory
	return b.String() + string(r.Body)
}

// Success reports whether the operation was done, as far as the status says: 2xx or 3xx.
func (r *Response) Success() bool { return r != nil && r.Status >= 200 && r.Status < 400 }

// Exchange is a request and its response, or why there is none.
type Exchange struct {
	Request  Request
	Response *Response // nil if none came, or not all of it
	Err      error     // why there is no response

	// When the last byte had been sent, and when the response was there.
	Sent, Ended time.Time
}

// Success reports whether the request was answered with a success.
func (e Exchange) Success() bool { return e.Response.Success() }

// NobodyListens reports whether there was no server to connect to.
func (e Exchange) NobodyListens() bool {
	var failed *net.OpError
	return errors.As(e.Err, &failed) && failed.Op == "dial"
}

// String says in a few words how the exchange ended.
func (e Exchange) String() string {
	if e.Response == nil {
		return fmt.Sprintf("no answer (%v)", e.Err)
	}
	return fmt.Sprintf("%d %s", e.Response.Status, http.StatusText(e.Response.Status))
}
