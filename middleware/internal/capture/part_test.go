package capture_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/middleware/internal/capture"
)

func noError() error { return nil }

// attempt writes a response, as one attempt of a transaction, and sets it aside.
func attempt(t *testing.T, w *capture.Writer, location, body string) {
	t.Helper()
	w.Header().Add("Location", location)
	w.WriteHeader(http.StatusCreated)
	write(t, w, body)
	err := w.SetAside(func() error {
		if r, _ := w.Response(false); string(r.Body) != body {
			t.Errorf("the body to store is %q, want %q", r.Body, body)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("SetAside: %v", err)
	}
}

// Each attempt of a transaction starts from the response as it was at BeginPart, and the last one is kept.
func TestSetAside(t *testing.T) {
	for name, attempts := range map[string][]string{"once": {"2"}, "again": {"first", "2"}, "twice again": {"1", "1", "2"}} {
		t.Run(name, func(t *testing.T) {
			w, under, observer := begin(http.MethodPost)
			w.Header().Set("X-Before", "1")
			if err := w.BeginPart(); err != nil {
				t.Fatal(err)
			}
			for _, a := range attempts {
				w.Header().Del("X-Before")
				attempt(t, w, "/"+a, a)
				if w.Header().Get("X-Before") != "1" || w.Header().Get("Location") != "" || w.Status() != 0 {
					t.Errorf("after SetAside: %d, %v; want what there was at BeginPart", w.Status(), w.Header())
				}
			}
			w.Header().Set("Location", "/late")
			w.WriteHeader(http.StatusTeapot)
			write(t, w, "late")
			w.Committed()
			if _, err := w.Write([]byte("more")); !errors.Is(err, journal.ErrAnswered) {
				t.Errorf("Write after Committed: %v, want ErrAnswered", err)
			}
			if w.Header().Get("Location") != "/2" || *observer != 0 {
				t.Errorf("after Committed: %v, %d calls of Sending", w.Header(), *observer)
			}
			w.Finish(false)
			w.Deliver(t.Context())
			h := under.Result().Header
			if under.Code != http.StatusCreated || under.Body.String() != "2" || len(h["Location"]) != 1 || h.Get("Location") != "/2" || h.Get("X-Before") != "" {
				t.Errorf("the client got %d %v %q, want the last attempt's response alone", under.Code, h, under.Body)
			}
		})
	}
}

// What was written before BeginPart belongs to each attempt, and is restored by Rewind.
func TestSetAsideAfterAWrite(t *testing.T) {
	for _, rewind := range []bool{false, true} {
		w, under, _ := begin(http.MethodPost)
		w.Header().Set("Trailer", "X-Sum")
		w.WriteHeader(http.StatusAccepted)
		write(t, w, "ab")
		if err := w.BeginPart(); err != nil {
			t.Fatal(err)
		}
		for _, c := range []string{"c", "d"} {
			write(t, w, c)
			w.Header().Set("X-Sum", c)
			if err := w.SetAside(noError); err != nil {
				t.Fatal(err)
			}
		}
		write(t, w, "e")
		w.Header().Set("X-Sum", "e")
		want, sum := "abd", "d"
		if rewind {
			w.Rewind()
			want, sum = "ab", ""
		} else {
			w.Committed()
		}
		w.Finish(false)
		w.Deliver(t.Context())
		if under.Code != http.StatusAccepted || under.Body.String() != want || under.Result().Trailer.Get("X-Sum") != sum {
			t.Errorf("rewind %t: %d %q, trailer %v; want 202 %q, %q", rewind, under.Code, under.Body, under.Result().Trailer, want, sum)
		}
	}
}

// An attempt that writes no response of its own has none, and leaves the earlier one as it was.
func TestSetAsideThenNoResponse(t *testing.T) {
	w, under, _ := begin(http.MethodPost)
	if err := w.BeginPart(); err != nil {
		t.Fatal(err)
	}
	attempt(t, w, "/1", "paid")
	w.Header().Set("Location", "/2")
	if err := w.SetAside(noError); !errors.Is(err, journal.ErrNoResponse) {
		t.Errorf("SetAside: %v, want ErrNoResponse", err)
	}
	w.Committed()
	w.Finish(false)
	w.Deliver(t.Context())
	if under.Body.String() != "paid" || under.Header().Get("Location") != "/1" {
		t.Errorf("the client got %v %q", under.Header(), under.Body)
	}
}

// moody is a writer whose Header panics once when the test says so.
type moody struct {
	*httptest.ResponseRecorder
	panics bool
}

func (m *moody) Header() http.Header {
	if m.panics {
		m.panics = false
		panic("header")
	}
	return m.ResponseRecorder.Header()
}

// fault: the underlying writer panics in Committed or Rewind, and the handler recovers. Expected: what was set aside is
// delivered, or nothing of it.
func TestPanicAtTheEndOfAPart(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*capture.Writer)
		want string
	}{
		"keep":   {(*capture.Writer).Committed, "1"},
		"rewind": {(*capture.Writer).Rewind, "failed"},
	} {
		w, under := new(capture.Writer), &moody{ResponseRecorder: httptest.NewRecorder()}
		w.Begin(under, httptest.NewRequest(http.MethodPost, "/", nil), new(sendings), limit)
		if err := w.BeginPart(); err != nil {
			t.Fatal(err)
		}
		attempt(t, w, "/1", "1")
		write(t, w, "2") // by an attempt that fails
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			under.panics = true
			c.end(w)
		}()
		_, err := io.WriteString(w, "failed")
		if isKept := name == "keep"; isKept != errors.Is(err, journal.ErrAnswered) {
			t.Errorf("%s: Write: %v", name, err)
		}
		w.Finish(false)
		w.Deliver(t.Context())
		if got := under.Body.String(); got != c.want || (under.Result().Header.Get("Location") == "/1") != (name == "keep") {
			t.Errorf("%s: the client got %v %q, want %q", name, under.Result().Header, got, c.want)
		}
	}
}
