package onceclient_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/onceclient"
)

var errForbidden = errors.New(`stream error: stream ID 1; PROTOCOL_ERROR; invalid header field value for "X-Trace"`)

// Each response is repeated, or returned as it is with its whole body.
func TestTable(t *testing.T) {
	t.Parallel()
	const replayed, yes, no = "Idempotent-Replayed: true", "X-Should-Retry: true", "X-Should-Retry: false"
	again := map[string]step{
		"no response":                     fail,
		"a response that HTTP/2 forbids":  func(*http.Request) (*http.Response, error) { return nil, errForbidden },
		"409 in-flight":                   problem(409, "in-flight"),
		"409 in-flight, with parameters":  answer(409, `{"type":"urn:onceguard:problem:in-flight"}`, problemJSON+"; charset=utf-8"),
		"500":                             answer(500, "oops"),
		"500, another problem":            problem(500, "else"),
		"500, damaged problem":            answer(500, "{", problemJSON),
		"503 run-failed":                  problem(503, "run-failed"),
		"a 400 that says so":              problem(400, "body-unreadable", yes),
		"a 409 that says so":              answer(409, "", "X-Should-Retry: True"),
		"a replayed 500 that says so":     answer(500, "", replayed, yes),
		"without a body":                  func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: 503}, nil },
		"500, long body":                  answer(500, strings.Repeat("x", 1<<20)),
		"record-unreadable that says so":  problem(500, "record-unreadable", yes),
		"outcome-unknown that says so":    problem(409, "outcome-unknown", yes),
		"500, not replayed":               answer(500, "", "Idempotent-Replayed: false"),
		"an X-Should-Retry of no meaning": answer(503, "", "X-Should-Retry: perhaps"),
	}
	// Bodies that break off, or do not come in the time of a try:
	long := strings.Repeat("x", mib)
	for name, s := range map[string]step{
		"500": broken(500, ""), "503": broken(503, long), "409": broken(409, `{"type":"urn:oncegu`, problemJSON), "404": broken(404, "hal"),
		"201": broken(201, "hal"), "201 at once": broken(201, ""), "200 of unknown length": withLength(broken(200, long), -1),
		"replayed": broken(201, "hal", replayed), "moved": broken(307, "hal", "Location: /elsewhere"),
		"409 that says no": broken(409, "hal", no), "a stalled 503": stalling(503), "a stalled 201": stalling(201),
	} {
		again[name+", broken off"] = s
	}
	for _, status := range []int{408, 425, 429, 502, 503, 504, 520, 521, 522, 523, 524} {
		again[fmt.Sprint(status)] = answer(status, "")
	}
	final := map[string]step{
		"409":                        answer(409, "conflict"),
		"409, not JSON":              answer(409, `{"type":"urn:onceguard:problem:in-flight"}`, "Content-Type: text/plain"),
		"409, problem too long":      answer(409, `{"type":"urn:onceguard:problem:in-flight","x":"`+strings.Repeat("x", 64<<10)+`"}`, problemJSON),
		"409, type of another kind":  answer(409, `{"type":7}`, problemJSON),
		"400 key-expired":            problem(400, "key-expired"),
		"500 record-unreadable":      problem(500, "record-unreadable"),
		"500 key-failed":             problem(500, "key-failed"),
		"500 replayed":               answer(500, "oops", replayed),
		"503 replayed":               answer(503, "oops", replayed),
		"503 that says no":           answer(503, "oops", no),
		"409 in-flight that says no": problem(409, "in-flight", no),
		"outcome-unknown, no":        problem(409, "outcome-unknown", no),
		"200 that says yes":          answer(200, "ok", yes),
		"307 without Location":       answer(307, "elsewhere"),
	}
	for _, name := range []string{"outcome-unknown", "response-not-stored", "fingerprint-changed", "else"} {
		final["409 "+name] = problem(409, name)
	}
	for _, status := range []int{200, 201, 202, 204, 206, 302, 304, 400, 401, 402, 403, 404, 405, 406, 407, 410, 412, 413, 415,
		417, 418, 421, 422, 423, 424, 426, 428, 431, 451, 499, 501, 505, 506, 507, 508, 510, 511, 525, 526, 530, 599} {
		final[fmt.Sprint(status)] = answer(status, "")
	}
	for name, first := range again {
		checkStep(t, name, first, true)
	}
	for name, first := range final {
		checkStep(t, name, first, false)
	}
}

func checkStep(t *testing.T, name string, first step, repeated bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		base := &fakeBase{steps: []step{first, created}}
		resp, body, err := send(t, t.Context(), base)
		if err != nil {
			t.Fatal(name, err)
		}
		want, tries := created, 2
		if !repeated {
			want, tries = first, 1
		}
		expected, _ := want(nil)
		content, _ := io.ReadAll(expected.Body)
		if resp.StatusCode != expected.StatusCode || body != string(content) || base.tries() != tries || base.open != 0 {
			t.Errorf("%s: got %d with %d bytes after %d tries, want %d with %d after %d; %d bodies are open", name,
				resp.StatusCode, len(body), base.tries(), expected.StatusCode, len(content), tries, base.open)
		}
		for i := range base.tries() {
			if base.bodies[i] != "book" || base.heads[i].Get("Idempotency-Key") != base.key() {
				t.Errorf("%s: try %d sent %q under %q", name, i+1, base.bodies[i], base.heads[i].Get("Idempotency-Key"))
			}
		}
	})
}

const mib = 1 << 20

// broken answers with a body that ends in an error.
func broken(status int, body string, header ...string) step {
	return func(req *http.Request) (*http.Response, error) {
		resp, err := answer(status, body, header...)(req)
		end := readerBody(func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF })
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(body), end))
		return resp, err
	}
}

// stalling answers with a body that comes a minute after the header.
func stalling(status int, header ...string) step {
	return func(req *http.Request) (*http.Response, error) {
		resp, err := answer(status, "", header...)(req)
		resp.ContentLength = -1
		resp.Body = readerBody(func(p []byte) (int, error) {
			select {
			case <-req.Context().Done():
				return 0, req.Context().Err()
			case <-time.After(time.Minute):
				return copy(p, "late"), io.EOF
			}
		})
		return resp, err
	}
}

// withLength changes the Content-Length of a step's response. -1 is an unknown one.
func withLength(s step, n int64) step {
	return func(req *http.Request) (*http.Response, error) {
		resp, err := s(req)
		resp.ContentLength = n
		return resp, err
	}
}

// What is not read within the try reaches the caller as it comes, and is not repeated if it breaks off.
func TestResponsesThatAreStreamed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", mib+1)
	for name, test := range map[string]struct {
		first step
		sent  string // what comes before the body breaks off
		opt   onceclient.Option
	}{
		"known length":        {withLength(broken(200, "hal"), mib+1), "hal", nil},
		"more than 1 MiB":     {withLength(broken(200, long), -1), long, nil},
		"events":              {broken(200, "hal", "Content-Type: text/event-stream; charset=utf-8"), "hal", nil},
		"request sent once":   {broken(200, "hal"), "hal", onceclient.WithMaxBody(0)},
		"503, sent once":      {broken(503, "hal"), "hal", onceclient.WithMaxBody(0)},
		"later than a try":    {withLength(stalling(201), mib+1), "late", nil},
		"later than the last": {stalling(200, "Content-Type: text/event-stream"), "late", onceclient.WithLimit(10 * time.Second)},
	} {
		synctest.Test(t, func(t *testing.T) {
			base := &fakeBase{steps: []step{test.first, created}}
			resp, err := newTransport(base, test.opt).RoundTrip(postBody(t, t.Context(), newBody(strings.NewReader("book")), -1))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(got) != test.sent || errors.Is(err, io.ErrUnexpectedEOF) == (test.sent == "late") || base.tries() != 1 || base.open != 0 {
				t.Errorf("%s: got %d bytes, %v after %d tries; %d bodies are open", name, len(got), err, base.tries(), base.open)
			}
		})
	}
}

// newTransport returns a Transport with an option that may be nil.
func newTransport(base http.RoundTripper, opt onceclient.Option) http.RoundTripper {
	if opt == nil {
		return onceclient.New(base)
	}
	return onceclient.New(base, opt)
}

// connection is the body of 101 Switching Protocols.
type connection struct{ bytes.Buffer }

func (*connection) Close() error { return nil }

// The body of 101 Switching Protocols stays writable.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	upgraded := new(connection)
	base := tripper(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: upgraded}, nil
	})
	resp, err := onceclient.New(base).RoundTrip(post(t, t.Context(), orders, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if w, ok := resp.Body.(io.Writer); !ok {
		t.Errorf("got %T", resp.Body)
	} else if _, err := io.WriteString(w, "hello"); upgraded.String() != "hello" || err != nil {
		t.Errorf("sent %q, %v", upgraded, err)
	}
}

func TestProblemType(t *testing.T) {
	t.Parallel()
	resp, _ := problem(409, "outcome-unknown")(nil)
	for range 2 {
		if got := onceclient.ProblemType(resp); got != onceclient.OutcomeUnknown {
			t.Errorf("got %q", got)
		}
	}
	if body, err := io.ReadAll(resp.Body); string(body) != `{"type":"urn:onceguard:problem:outcome-unknown"}` || err != nil {
		t.Errorf("afterwards the body is %q, %v", body, err)
	}
	resp, _ = broken(409, `{"type":"u`, problemJSON)(nil)
	if got := onceclient.ProblemType(resp); got != "" {
		t.Errorf("of a body that breaks off: got %q", got)
	}
	if body, err := io.ReadAll(resp.Body); string(body) != `{"type":"u` || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("afterwards the broken body is %q, %v", body, err)
	}
}

func FuzzProblemType(f *testing.F) {
	f.Add("application/problem+json", []byte(`{"type":"urn:onceguard:problem:in-flight"}`))
	f.Add("application/problem+json; charset=utf-8", []byte(`[]`))
	f.Add("text/html", []byte(`{"type":"x"}`))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		got := onceclient.ProblemTypeOf(http.Header{"Content-Type": {contentType}}, body)
		if got != "" && !strings.Contains(strings.ToLower(contentType), "application/problem+json") {
			t.Errorf("%q of %q", got, contentType)
		}
	})
}
