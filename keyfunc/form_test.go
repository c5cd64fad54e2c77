package keyfunc_test

import (
	"bytes"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
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

// What is a form, and where its field is. TestSources has the values of the field.
func TestForm(t *testing.T) {
	t.Parallel()
	type row struct {
		contentType, body string
		err               error // nil: the key is abc
	}
	rows := []row{
		{urlencoded + "; charset=utf-8", "key=abc", nil},
		{"Application/X-WWW-Form-Urlencoded", "key=abc", nil},
		{urlencoded + "; charset", "key=abc", nil},
		{urlencoded, "key=%61b%63", nil},
		{urlencoded, "Key=abc", keyfunc.ErrMissing},
		{urlencoded, "", keyfunc.ErrMissing},
		{urlencoded, "key", keyfunc.ErrInvalid},
		{urlencoded, "key=abc&item=%zz", keyfunc.ErrInvalid},
		{urlencoded, "item=1;key=abc", keyfunc.ErrInvalid},
		{"application/json", `{"key":"abc"}`, keyfunc.ErrMissing},
		{"", "key=abc", keyfunc.ErrMissing},
		{urlencoded + ", text/plain", "key=abc", keyfunc.ErrMissing},
		{"multipart/form-data; boundary=xYz", "--xYz--\r\n", keyfunc.ErrMissing},
		{"multipart/form-data; boundary=xYz", "--xYz\r\n\r\nabc\r\n--xYz--\r\n", keyfunc.ErrMissing}, // a part without a name
	}
	for _, parts := range [][]string{
		{filePart("key", "abc")}, {part("key", "abc"), filePart("key", "abc")}, {"nonsense\r\n\r\nabc", part("key", "abc")},
	} {
		contentType, body := multi("xYz", parts...)
		rows = append(rows, row{contentType, body, keyfunc.ErrInvalid})
	}
	_, body := multi("xYz", part("key", "abc"))
	for _, parameters := range []string{"", `; boundary=""`, "; boundary=xYz; boundary=b", "; boundary=other"} {
		rows = append(rows, row{"multipart/form-data" + parameters, body, keyfunc.ErrInvalid})
	}
	for n := 1; n <= len(strings.TrimSuffix(body, "-\r\n")); n++ {
		rows = append(rows, row{"multipart/form-data; boundary=xYz", body[:n], keyfunc.ErrInvalid})
	}
	for _, c := range rows {
		r, want := withBody(c.contentType, c.body), "abc"
		if c.err != nil {
			want = ""
		}
		expect(t, keyfunc.Form("key"), r, want, c.err)
		expect(t, keyfunc.Form("key"), r, want, c.err)
		if r.PostForm != nil || r.Form != nil || r.MultipartForm != nil {
			t.Errorf("%q: PostForm = %v, Form = %v, MultipartForm = %v, want nil", c.body, r.PostForm, r.Form, r.MultipartForm)
		}
		expectBody(t, r, c.body)
	}
}

func TestFormParsedBefore(t *testing.T) {
	t.Parallel()
	contentType, body := multi("xYz", filePart("photo", "png"), part("key", "abc"))
	_, keyless := multi("xYz", part("item", "1"))
	_, file := multi("xYz", filePart("key", "abc"))
	parseForm := func(r *http.Request) error { return r.ParseForm() }
	parseMultipart := func(r *http.Request) error { return r.ParseMultipartForm(1 << 20) }
	for _, c := range []struct {
		method, contentType, body string
		before                    func(*http.Request) error
		want                      string
		err                       error
	}{
		{"POST", urlencoded, "key=abc", parseForm, "abc", nil},
		{"POST", urlencoded, "item=1", parseForm, "", keyfunc.ErrMissing},
		{"POST", urlencoded, "key=abc&key=d", parseForm, "", keyfunc.ErrInvalid},
		{"DELETE", urlencoded, "key=abc", parseForm, "abc", nil}, // ParseForm leaves this body alone
		{"POST", contentType, body, parseMultipart, "abc", nil},
		{"POST", contentType, keyless, parseMultipart, "", keyfunc.ErrMissing},
		{"POST", contentType, file, parseMultipart, "", keyfunc.ErrInvalid},
		{"POST", contentType, body, parseForm, "abc", nil}, // and this one
	} {
		for _, length := range []int64{int64(len(c.body)), -1} {
			r := withBody(c.contentType, c.body)
			r.Method, r.ContentLength = c.method, length
			if err := c.before(r); err != nil {
				t.Fatal(err)
			}
			expect(t, keyfunc.Form("key"), r, c.want, c.err)
		}
	}
	r := post("/")
	r.MultipartForm = &multipart.Form{Value: url.Values{"key": {"abc"}}}
	expect(t, keyfunc.Form("key"), r, "abc", nil)
}

// If an earlier handler has read the body and not put it back, the request must not count as one without a key.
func TestBodyReadBefore(t *testing.T) {
	t.Parallel()
	contentType, body := multi("xYz", part("key", "abc"))
	read := func(r *http.Request) error { _, err := io.Copy(io.Discard, r.Body); return err }
	for name, c := range map[string]struct {
		fn     keyfunc.Func
		before func(*http.Request) error
	}{
		"form, read":     {keyfunc.Form("key"), read},
		"form, replaced": {keyfunc.Form("key"), func(r *http.Request) error { r.Body = http.NoBody; return nil }},
		"form, read by parts": {keyfunc.Form("key"), func(r *http.Request) error {
			r.ContentLength = -1
			parts, err := r.MultipartReader()
			if err == nil {
				_, err = parts.NextPart()
			}
			return errors.Join(err, r.Body.Close())
		}},
		"body, read": {keyfunc.Body(), read},
		"body, parsed": {keyfunc.Body(), func(r *http.Request) error {
			r.ContentLength = -1
			return r.ParseMultipartForm(1 << 20)
		}},
		"JSON, read": {keyfunc.JSON("/id"), func(r *http.Request) error {
			r.Header.Set("Content-Type", jsonType)
			return read(r)
		}},
	} {
		r := withBody(contentType, body)
		if err := c.before(r); err != nil {
			t.Fatal(name, err)
		}
		key, err := c.fn(r)
		if expectFault(t, err); key != "" {
			t.Errorf("%s: %q", name, key)
		}
	}
}

// expectFault checks that err is none of the sentinels: the request is not to blame.
func expectFault(t *testing.T, err error) {
	t.Helper()
	for _, sentinel := range sentinels {
		if err == nil || errors.Is(err, sentinel) {
			t.Errorf("err = %v, want one that is not %v", err, sentinel)
		}
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
	for contentType, fn := range map[string]keyfunc.Func{urlencoded: keyfunc.Form("key"), "": keyfunc.Body(), jsonType: keyfunc.JSON("/key")} {
		r := withBody(contentType, "key=abc&item=1")
		r.Body = http.MaxBytesReader(httptest.NewRecorder(), r.Body, 7)
		for range 2 {
			_, err := fn(r)
			if expectFault(t, err); !errors.As(err, new(*http.MaxBytesError)) {
				t.Errorf("err = %v, want a *http.MaxBytesError", err)
			}
		}

		r = withBody(contentType, "") // what was read is put back, and the error
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader("key=abc"), iotest.ErrReader(broken)))
		_, err := fn(r)
		if expectFault(t, err); !errors.Is(err, broken) {
			t.Errorf("err = %v, want %v", err, broken)
		}
		got, err := io.ReadAll(iotest.OneByteReader(r.Body))
		if string(got) != "key=abc" || err != broken {
			t.Errorf("read again = %q, %v, want key=abc, %v", got, err, broken)
		}
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
