package onceclient_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

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
		"500, body breaks off":            broken(500, ""),
		"409, body breaks off":            broken(409, `{"type":"urn:oncegu`, problemJSON),
		"503, body breaks off":            broken(503, "hal"),
		"without a body":                  func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: 503}, nil },
		"500, long body":                  answer(500, strings.Repeat("x", 1<<20)),
		"record-unreadable that says so":  problem(500, "record-unreadable", yes),
		"500, not replayed":               answer(500, "", "Idempotent-Replayed: false"),
		"an X-Should-Retry of no meaning": answer(503, "", "X-Should-Retry: perhaps"),
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
		t.Run(name+" is repeated", func(t *testing.T) { checkStep(t, first, true) })
	}
	for name, first := range final {
		t.Run(name+" is returned", func(t *testing.T) { checkStep(t, first, false) })
	}
}

func checkStep(t *testing.T, first step, repeated bool) {
	synctest.Test(t, func(t *testing.T) {
		base := &fakeBase{steps: []step{first, created}}
		resp, body, err := send(t, t.Context(), base)
		if err != nil {
			t.Fatal(err)
		}
		want, tries := created, 2
		if !repeated {
			want, tries = first, 1
		}
		expected, _ := want(nil)
		content, _ := io.ReadAll(expected.Body)
		if resp.StatusCode != expected.StatusCode || body != string(content) {
			t.Errorf("got %d with %d bytes, want %d with %d", resp.StatusCode, len(body), expected.StatusCode, len(content))
		}
		if base.tries() != tries {
			t.Errorf("%d tries, want %d", base.tries(), tries)
		}
		for i := range base.tries() {
			if base.bodies[i] != "book" || base.heads[i].Get("Idempotency-Key") != base.heads[0].Get("Idempotency-Key") {
				t.Errorf("try %d sent %q under %q", i+1, base.bodies[i], base.heads[i].Get("Idempotency-Key"))
			}
		}
		if base.open != 0 {
			t.Errorf("%d response bodies were not closed", base.open)
		}
	})
}

// broken answers with a body that ends in an error.
func broken(status int, body string, header ...string) step {
	return func(req *http.Request) (*http.Response, error) {
		resp, err := answer(status, body, header...)(req)
		end := readerBody(func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF })
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(body), end))
		return resp, err
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
