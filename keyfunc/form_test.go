package keyfunc_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/onceguard/onceguard/keyfunc"
)

const urlencoded = "application/x-www-form-urlencoded"

func withBody(contentType, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/orders?key=in-the-url", strings.NewReader(body))
	r.Body = &unclosed{ReadCloser: r.Body}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r
}

// unclosed is a body that cannot be read once it is closed.
type unclosed struct {
	io.ReadCloser
	closed bool
}

func (u *unclosed) Read(p []byte) (int, error) {
	if u.closed {
		return 0, errors.New("closed")
	}
	return u.ReadCloser.Read(p)
}

func (u *unclosed) Close() error {
	u.closed = true
	return nil
}

// part returns one part of a multipart body: its header, an empty line, and its content.
func part(name, value string) string {
	return "Content-Disposition: form-data; name=" + name + "\r\n\r\n" + value
}

func filePart(name, value string) string {
	return "Content-Disposition: form-data; name=" + name + "; filename=f.txt\r\n\r\n" + value
}

func multi(boundary string, parts ...string) (contentType, body string) {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("--" + boundary + "\r\n" + p + "\r\n")
	}
	b.WriteString("--" + boundary + "--\r\n")
	return `multipart/form-data; boundary="` + boundary + `"`, b.String()
}

func expectBody(t *testing.T, r *http.Request, want string) {
	t.Helper()
	got, err := io.ReadAll(r.Body)
	if err != nil || string(got) != want {
		t.Errorf("body after the call = %q, %v, want %q", got, err, want)
	}
}

func TestFormURLEncoded(t *testing.T) {
	t.Parallel()
	a := func(n int) string { return strings.Repeat("a", n) }
	cases := []struct {
		name, contentType, body string
		want                    string
		err                     error
	}{
		{"plain", urlencoded, "item=1&key=abc", "abc", nil},
		{"parameters of the type", urlencoded + "; charset=utf-8", "key=abc", "abc", nil},
		{"upper case type", "Application/X-WWW-Form-Urlencoded", "key=abc", "abc", nil},
		{"broken parameters", urlencoded + "; charset", "key=abc", "abc", nil},
		{"decoded", urlencoded, "key=a+b%2Cc", "a b,c", nil},
		{"quotes are characters", urlencoded, "key=%22abc%22", `"abc"`, nil},
		{"255", urlencoded, "key=" + a(255), a(255), nil},
		{"256", urlencoded, "key=" + a(256), "", keyfunc.ErrInvalid},
		{"absent", urlencoded, "item=1", "", keyfunc.ErrMissing},
		{"other case", urlencoded, "Key=abc", "", keyfunc.ErrMissing},
		{"no body", urlencoded, "", "", keyfunc.ErrMissing},
		{"empty", urlencoded, "key=", "", keyfunc.ErrInvalid},
		{"no value", urlencoded, "key", "", keyfunc.ErrInvalid},
		{"twice", urlencoded, "key=abc&key=abc", "", keyfunc.ErrInvalid},
		{"tab", urlencoded, "key=a%09b", "", keyfunc.ErrInvalid},
		{"not ASCII", urlencoded, "key=k%C3%A4se", "", keyfunc.ErrInvalid},
		{"bad escape elsewhere", urlencoded, "key=abc&item=%zz", "", keyfunc.ErrInvalid},
		{"semicolon", urlencoded, "item=1;key=abc", "", keyfunc.ErrInvalid},
		{"JSON", "application/json", `{"key":"abc"}`, "", keyfunc.ErrMissing},
		{"text", "text/plain", "key=abc", "", keyfunc.ErrMissing},
		{"no type", "", "key=abc", "", keyfunc.ErrMissing},
		{"two types", urlencoded + ", text/plain", "key=abc", "", keyfunc.ErrMissing},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := withBody(c.contentType, c.body)
			expect(t, keyfunc.Form("key"), r, c.want, c.err)
			expect(t, keyfunc.Form("key"), r, c.want, c.err)
			if r.PostForm != nil || r.Form != nil {
				t.Errorf("PostForm = %v, Form = %v, want nil", r.PostForm, r.Form)
			}
			expectBody(t, r, c.body)
		})
	}
}

func TestFormMultipart(t *testing.T) {
	t.Parallel()
	a := func(n int) string { return strings.Repeat("a", n) }
	cases := []struct {
		name  string
		parts []string
		want  string
		err   error
	}{
		{"plain", []string{part("item", "1"), part("key", "abc")}, "abc", nil},
		{"beside a file", []string{filePart("photo", "\x00\xff"), part("key", "abc")}, "abc", nil},
		{"255", []string{part("key", a(255))}, a(255), nil},
		{"256", []string{part("key", a(256))}, "", keyfunc.ErrInvalid},
		{"long", []string{part("key", a(1<<16)), part("item", "1")}, "", keyfunc.ErrInvalid},
		{"absent", []string{part("item", "1")}, "", keyfunc.ErrMissing},
		{"no parts", nil, "", keyfunc.ErrMissing},
		{"empty", []string{part("key", "")}, "", keyfunc.ErrInvalid},
		{"twice", []string{part("key", "abc"), part("key", "abc")}, "", keyfunc.ErrInvalid},
		{"a file", []string{filePart("key", "abc")}, "", keyfunc.ErrInvalid},
		{"and a file", []string{part("key", "abc"), filePart("key", "abc")}, "", keyfunc.ErrInvalid},
		{"newline", []string{part("key", "abc\r\n")}, "", keyfunc.ErrInvalid},
		{"no name", []string{"\r\nabc"}, "", keyfunc.ErrMissing},
		{"broken header", []string{"nonsense\r\n\r\nabc", part("key", "abc")}, "", keyfunc.ErrInvalid},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			contentType, body := multi("xYz", c.parts...)
			r := withBody(contentType, body)
			expect(t, keyfunc.Form("key"), r, c.want, c.err)
			expect(t, keyfunc.Form("key"), r, c.want, c.err)
			if r.MultipartForm != nil || r.PostForm != nil {
				t.Errorf("MultipartForm = %v, PostForm = %v, want nil", r.MultipartForm, r.PostForm)
			}
			expectBody(t, r, body)
		})
	}
}

func TestFormMalformedMultipart(t *testing.T) {
	t.Parallel()
	contentType, body := multi("xYz", part("key", "abc"))
	cases := []struct{ name, contentType, body string }{
		{"no boundary", "multipart/form-data", body},
		{"empty boundary", `multipart/form-data; boundary=""`, body},
		{"two boundaries", "multipart/form-data; boundary=xYz; boundary=b", body},
		{"other boundary", "multipart/form-data; boundary=other", body},
	}
	for n := 1; n <= len(strings.TrimSuffix(body, "-\r\n")); n++ {
		cases = append(cases, struct{ name, contentType, body string }{fmt.Sprint("truncated after ", n), contentType, body[:n]})
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := withBody(c.contentType, c.body)
			expect(t, keyfunc.Form("key"), r, "", keyfunc.ErrInvalid)
			expectBody(t, r, c.body)
		})
	}
}

func TestFormParsedBefore(t *testing.T) {
	t.Parallel()
	contentType, body := multi("xYz", filePart("photo", "png"), part("key", "abc"))
	_, keyless := multi("xYz", part("item", "1"))
	_, file := multi("xYz", filePart("key", "abc"))
	parseForm := func(r *http.Request) error { return r.ParseForm() }
	parseMultipart := func(r *http.Request) error { return r.ParseMultipartForm(1 << 20) }
	cases := []struct {
		name, method, contentType, body string
		before                          func(*http.Request) error
		want                            string
		err                             error
	}{
		{"urlencoded", "POST", urlencoded, "key=abc", parseForm, "abc", nil},
		{"urlencoded without the field", "POST", urlencoded, "item=1", parseForm, "", keyfunc.ErrMissing},
		{"urlencoded twice", "POST", urlencoded, "key=abc&key=d", parseForm, "", keyfunc.ErrInvalid},
		{"DELETE, whose body ParseForm leaves alone", "DELETE", urlencoded, "key=abc", parseForm, "abc", nil},
		{"multipart", "POST", contentType, body, parseMultipart, "abc", nil},
		{"multipart without the field", "POST", contentType, keyless, parseMultipart, "", keyfunc.ErrMissing},
		{"multipart with a file", "POST", contentType, file, parseMultipart, "", keyfunc.ErrInvalid},
		{"multipart, which ParseForm leaves alone", "POST", contentType, body, parseForm, "abc", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, length := range []int64{int64(len(c.body)), -1} {
				r := withBody(c.contentType, c.body)
				r.Method, r.ContentLength = c.method, length
				if err := c.before(r); err != nil {
					t.Fatal(err)
				}
				expect(t, keyfunc.Form("key"), r, c.want, c.err)
			}
		})
	}

	t.Run("only MultipartForm", func(t *testing.T) {
		t.Parallel()
		r := post("/")
		r.MultipartForm = &multipart.Form{Value: url.Values{"key": {"abc"}}}
		expect(t, keyfunc.Form("key"), r, "abc", nil)
	})
}

// If an earlier handler has read the body and not put it back, the request must not count as one without a key.
func TestBodyReadBefore(t *testing.T) {
	t.Parallel()
	contentType, body := multi("xYz", part("key", "abc"))
	cases := []struct {
		name   string
		fn     keyfunc.Func
		before func(*http.Request) error
	}{
		{"form, read", keyfunc.Form("key"), func(r *http.Request) error { _, err := io.Copy(io.Discard, r.Body); return err }},
		{"form, replaced", keyfunc.Form("key"), func(r *http.Request) error { r.Body = http.NoBody; return nil }},
		{"form, read by parts", keyfunc.Form("key"), func(r *http.Request) error {
			r.ContentLength = -1
			parts, err := r.MultipartReader()
			if err == nil {
				_, err = parts.NextPart()
			}
			return errors.Join(err, r.Body.Close())
		}},
		{"body, read", keyfunc.Body(), func(r *http.Request) error { _, err := io.Copy(io.Discard, r.Body); return err }},
		{"body, parsed", keyfunc.Body(), func(r *http.Request) error {
			r.ContentLength = -1
			return r.ParseMultipartForm(1 << 20)
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := withBody(contentType, body)
			if err := c.before(r); err != nil {
				t.Fatal(err)
			}
			key, err := c.fn(r)
			if key != "" || err == nil {
				t.Fatalf("got %q, %v, want an error", key, err)
			}
			for _, sentinel := range sentinels {
				if errors.Is(err, sentinel) {
					t.Errorf("err = %v, want none of the sentinels", err)
				}
			}
		})
	}
}

// Without a length, a body that was read before is not told from an empty one, so neither has a key. A request without a
// body has a length, 0.
//
// fault: an outer middleware has read the body of a request in chunks.
func TestEmptyBodyOfUnknownLength(t *testing.T) {
	t.Parallel()
	multipartType, _ := multi("xYz")
	nothing := func(*http.Request) {}
	for name, test := range map[string]struct {
		fn          keyfunc.Func
		contentType string
		before      func(*http.Request)
	}{
		"Form":            {keyfunc.Form("key"), urlencoded, nothing},
		"Form, multipart": {keyfunc.Form("key"), multipartType, nothing},
		"Form, parsed":    {keyfunc.Form("key"), urlencoded, func(r *http.Request) { _ = r.ParseForm() }},
		"Form, replaced":  {keyfunc.Form("key"), urlencoded, func(r *http.Request) { r.Body = http.NoBody }},
		"JSON":            {keyfunc.JSON("/id"), jsonType, nothing},
		"Body":            {keyfunc.Body(), jsonType, nothing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := withBody(test.contentType, "")
			r.ContentLength = -1
			test.before(r)
			expect(t, test.fn, r, "", keyfunc.ErrInvalid)
			if r.ContentLength = 0; name != "Body" {
				expect(t, test.fn, r, "", keyfunc.ErrMissing)
			} else if _, err := test.fn(r); err != nil {
				t.Errorf("no body: %v", err)
			}
		})
	}
}

func TestBodyReadErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	types := map[string]string{"JSON": jsonType}
	for name, fn := range map[string]keyfunc.Func{"Form": keyfunc.Form("key"), "Body": keyfunc.Body(), "JSON": keyfunc.JSON("/key")} {
		contentType := cmp.Or(types[name], urlencoded)
		t.Run(name+" limit", func(t *testing.T) {
			t.Parallel()
			r := withBody(contentType, "key=abc&item=1")
			r.Body = http.MaxBytesReader(httptest.NewRecorder(), r.Body, 7)
			for range 2 {
				_, err := fn(r)
				expectReadError(t, err)
				if tooLong := new(*http.MaxBytesError); !errors.As(err, tooLong) {
					t.Errorf("err = %v, want a *http.MaxBytesError", err)
				}
			}
		})
		t.Run(name+" restores what was read, and the error", func(t *testing.T) {
			t.Parallel()
			r := withBody(contentType, "")
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader("key=abc"), iotest.ErrReader(broken)))
			_, err := fn(r)
			expectReadError(t, err)
			if !errors.Is(err, broken) {
				t.Errorf("err = %v, want %v", err, broken)
			}
			got, err := io.ReadAll(iotest.OneByteReader(r.Body))
			if string(got) != "key=abc" || err != broken {
				t.Errorf("read again = %q, %v, want key=abc, %v", got, err, broken)
			}
		})
	}
}

func expectReadError(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			t.Errorf("err = %v is %v", err, sentinel)
		}
	}
}

// Goroutines of the next reader may read the body at the same time. Each byte is returned once.
func TestBodyIsReadByGoroutines(t *testing.T) {
	t.Parallel()
	const length = 1 << 17
	r := withBody("text/plain", strings.Repeat("a", length))
	if _, err := keyfunc.Body()(r); err != nil {
		t.Fatal(err)
	}
	var read atomic.Int64
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			n, err := io.Copy(io.Discard, iotest.OneByteReader(r.Body))
			if read.Add(n); err != nil {
				t.Error(err)
			}
		})
	}
	readers.Wait()
	if got := read.Load(); got != length {
		t.Errorf("%d bytes, want %d", got, length)
	}
}

// FuzzForm compares Form with net/http on the same form.
func FuzzForm(f *testing.F) {
	seed := func(contentType, body string) { f.Add(contentType, []byte(body)) }
	seed(urlencoded, "key=abc")
	seed(urlencoded+"; charset=utf-8", "key=a+b&item=%zz")
	seed(urlencoded, "key=a&key=b")
	seed(multi("xYz", part("key", "abc"), filePart("photo", "png")))
	seed(multi("xYz", filePart("key", "abc")))
	seed(multi("xYz", part("key", "abc"), filePart("key", "abc")))
	seed("multipart/form-data; boundary=b", "--b\r\n\r\n")
	seed("multipart/form-data; boundary=b", "preamble\n--b\nContent-Disposition: form-data; name=key\n\nabc\n--b--")
	seed("application/json", `{"key":"abc"}`)
	seed(urlencoded, "&")

	fn := keyfunc.Form("key")
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		request := func() *http.Request {
			r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
			r.Header.Set("Content-Type", contentType)
			return r
		}
		r := request()
		key, err := fn(r)
		if err != nil && !errors.Is(err, keyfunc.ErrMissing) && !errors.Is(err, keyfunc.ErrInvalid) {
			t.Fatalf("err = %v", err)
		}
		if (key == "") != (err != nil) || len(key) > 255 {
			t.Fatalf("key = %q, err = %v", key, err)
		}
		expectBody(t, r, string(body))

		// Form is stricter: net/http accepts what there is of a truncated form.
		parsed := request()
		if parsed.ParseForm() != nil || errors.Is(err, keyfunc.ErrInvalid) {
			return
		}
		if parseErr := parsed.ParseMultipartForm(1 << 20); parseErr != nil && !errors.Is(parseErr, http.ErrNotMultipart) {
			return
		}
		if err == nil && (len(parsed.PostForm["key"]) != 1 || parsed.PostForm["key"][0] != key) {
			t.Fatalf("key = %q, net/http has %q", key, parsed.PostForm["key"])
		}
		if len(parsed.PostForm) == 0 && parsed.MultipartForm == nil && len(body) > 0 { // as after a ParseForm that failed
			return
		}
		expect(t, fn, parsed, key, err)
	})
}
