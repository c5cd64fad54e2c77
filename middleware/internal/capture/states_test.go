package capture_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/middleware/internal/capture"
)

// framework is an underlying writer that knows whether it was written to, and whether its handlers have left the response to
// an outer middleware. Its Hijack fails if hijack is set.
type framework struct {
	*httptest.ResponseRecorder
	written      bool
	open, hijack error
}

func (f *framework) Written() bool   { return f.written }
func (f *framework) LeftOpen() error { return f.open }

func (f *framework) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if f.hijack != nil {
		return nil, nil, f.hijack
	}
	conn, _ := net.Pipe()
	return conn, nil, nil
}

func (f *framework) WriteHeader(status int) { f.written = true; f.ResponseRecorder.WriteHeader(status) }

// Who has answered is judged by what the Writer and the underlying writer know.
func TestWhoHasAnswered(t *testing.T) {
	open := errors.New("rendered outside")
	around := func(_ *capture.Writer, u *framework) { u.written = true }
	for name, test := range map[string]struct {
		before  framework
		do      func(*capture.Writer, *framework)
		expired bool
		want    capture.Verdict
		sends   sendings
		client  int // the status that the client gets from the Writer; 0 for none
	}{
		"nobody":                  {framework{}, func(*capture.Writer, *framework) {}, false, capture.Whole, 0, 200},
		"the handler, around":     {framework{}, around, false, capture.Bypassed, 1, 0},
		"around, and too late":    {framework{}, around, true, capture.Bypassed, 1, 0},
		"both":                    {framework{}, func(w *capture.Writer, u *framework) { w.WriteHeader(503); u.written = true }, false, capture.Bypassed, 1, 0},
		"somebody before":         {framework{written: true}, func(w *capture.Writer, _ *framework) { w.WriteHeader(201) }, false, capture.Whole, 0, 201},
		"nobody, but before":      {framework{written: true}, func(*capture.Writer, *framework) {}, false, capture.Whole, 0, 200},
		"a hint":                  {framework{}, func(w *capture.Writer, _ *framework) { w.WriteHeader(103) }, false, capture.Whole, 0, 103}, // a recorder has the first status
		"the handler, flushed":    {framework{}, func(w *capture.Writer, _ *framework) { w.WriteHeader(201); w.Flush() }, false, capture.Whole, 1, 201},
		"an outer middleware":     {framework{open: open}, func(*capture.Writer, *framework) {}, false, capture.LeftOpen, 0, 0},
		"an outer one, too late":  {framework{open: open}, func(*capture.Writer, *framework) {}, true, capture.LeftOpen, 0, 0},
		"the handler, left open":  {framework{open: open}, func(w *capture.Writer, _ *framework) { w.WriteHeader(201) }, false, capture.Whole, 0, 201},
		"hijacked":                {framework{}, func(w *capture.Writer, _ *framework) { _, _, _ = w.Hijack() }, false, capture.Partial, 1, 0},
		"hijacked in vain":        {framework{hijack: open}, func(w *capture.Writer, _ *framework) { _, _, _ = w.Hijack() }, false, capture.Whole, 0, 200},
		"hijacked after a status": {framework{}, func(w *capture.Writer, _ *framework) { w.WriteHeader(201); _, _, _ = w.Hijack() }, false, capture.Partial, 2, 201},
	} {
		for _, end := range []string{"Deliver", "Abort"} {
			u, w, observer := test.before, new(capture.Writer), new(sendings)
			u.ResponseRecorder = httptest.NewRecorder()
			w.Begin(&u, httptest.NewRequest(http.MethodPost, "/", nil), observer, limit)
			test.do(w, &u)
			if end == "Abort" {
				w.Abort()
				if isAround := test.want == capture.Bypassed; isAround != (*observer == 1 && !w.Started()) && isAround {
					t.Errorf("%s, aborted: %d calls of Sending", name, *observer)
				}
				continue
			}
			if got := w.Finish(test.expired); got != test.want || *observer != test.sends {
				t.Errorf("%s: verdict %d, %d calls of Sending; want %d, %d", name, got, *observer, test.want, test.sends)
			}
			isStarted := test.sends > 0 || test.want == capture.LeftOpen
			if w.Started() != isStarted {
				t.Errorf("%s: started %t", name, w.Started())
			}
			w.Deliver(t.Context())
			if got := u.ResponseRecorder; test.client == 0 && u.Body.Len() > 0 || test.client > 0 && got.Code != test.client {
				t.Errorf("%s: the client got %d %q", name, got.Code, got.Body)
			}
		}
	}
}

// In each state a method that cannot do its work says why, and changes nothing.
func TestRefusedCalls(t *testing.T) {
	type call struct {
		name string
		do   func(*capture.Writer) error
	}
	flush := call{"Flush", (*capture.Writer).FlushError}
	hijackCall := call{"Hijack", hijack}
	begin := call{"BeginPart", (*capture.Writer).BeginPart}
	writeCall := call{"Write", put("x")}
	aside := call{"SetAside", func(w *capture.Writer) error { return w.SetAside(noError) }}
	for name, test := range map[string]struct {
		before func(*capture.Writer)
		call   call
		want   error
	}{
		"hijacked, flush":      {func(w *capture.Writer) { _ = hijack(w) }, flush, http.ErrHijacked},
		"hijacked, write":      {func(w *capture.Writer) { _ = hijack(w) }, writeCall, http.ErrHijacked},
		"frozen, flush":        {(*capture.Writer).Freeze, flush, journal.ErrAnswered},
		"frozen, hijack":       {(*capture.Writer).Freeze, hijackCall, journal.ErrAnswered},
		"frozen, write":        {(*capture.Writer).Freeze, writeCall, journal.ErrAnswered},
		"frozen, a part":       {(*capture.Writer).Freeze, begin, journal.ErrAnswered},
		"frozen, aside":        {(*capture.Writer).Freeze, aside, journal.ErrAnswered},
		"in a part, hijack":    {func(w *capture.Writer) { _ = w.BeginPart() }, hijackCall, http.ErrNotSupported},
		"in a part, flush":     {func(w *capture.Writer) { _ = w.BeginPart() }, flush, nil},
		"sent, a part":         {(*capture.Writer).Flush, begin, capture.ErrSent},
		"no part, aside":       {func(*capture.Writer) {}, aside, journal.ErrNoResponse},
		"silent part, aside":   {func(w *capture.Writer) { _ = w.BeginPart() }, aside, journal.ErrNoResponse},
		"long part, aside":     {func(w *capture.Writer) { _ = w.BeginPart(); _ = put("12345678901")(w) }, aside, journal.ErrTooLong},
		"a 101, aside":         {func(w *capture.Writer) { _ = w.BeginPart(); w.WriteHeader(101) }, aside, journal.ErrNoResponse},
		"over, a part":         {func(w *capture.Writer) { w.Finish(false) }, begin, capture.ErrReturned},
		"over, aside":          {func(w *capture.Writer) { w.Finish(false) }, aside, capture.ErrReturned},
		"a 204, write":         {func(w *capture.Writer) { w.WriteHeader(204) }, writeCall, http.ErrBodyNotAllowed},
		"beyond length, write": {func(w *capture.Writer) { w.Header().Set("Content-Length", "0") }, writeCall, http.ErrContentLength},
	} {
		u, w := &framework{ResponseRecorder: httptest.NewRecorder()}, new(capture.Writer)
		w.Begin(u, httptest.NewRequest(http.MethodPost, "/", nil), new(sendings), limit)
		test.before(w)
		before := u.Body.String()
		if err := test.call.do(w); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if u.Body.String() != before {
			t.Errorf("%s: the client got %q", name, u.Body)
		}
	}
}

// After its end, and without a beginning, a part is neither committed nor undone.
func TestPartThatIsOver(t *testing.T) {
	for name, end := range map[string]func(*capture.Writer){"Committed": (*capture.Writer).Committed, "Rewind": (*capture.Writer).Rewind} {
		for _, begun := range []bool{false, true} {
			w, under, _ := begin(http.MethodPost)
			write(t, w, "a")
			if begun {
				if err := w.BeginPart(); err != nil {
					t.Fatal(err)
				}
				write(t, w, "b")
				if err := w.SetAside(noError); err != nil {
					t.Fatal(err)
				}
				if w.WrittenSince() {
					t.Error("written since SetAside")
				}
				write(t, w, "c")
				if !w.WrittenSince() {
					t.Error("not written since SetAside")
				}
				w.Finish(false)
			}
			end(w)
			want := map[bool]string{true: "ac", false: "a!"}[begun]
			if !begun {
				write(t, w, "!")
				w.Finish(false)
			}
			w.Deliver(t.Context())
			if under.Body.String() != want {
				t.Errorf("%s, begun %t: %q, want %q", name, begun, under.Body, want)
			}
		}
	}
}

// net/http detects the Content-Type, also of a replay. Beside a Transfer-Encoding, which is not stored, it detects none. HTTP/2
// has no Transfer-Encoding. Before a Flush the Writer sets what net/http would detect from the first part.
func TestDetectedType(t *testing.T) {
	for _, test := range []struct {
		major  int
		coding bool
		parts  []string // a Flush before each empty one
		want   string   // the fields that were sent
	}{
		{1, true, []string{"text"}, "map[Content-Type:[] Transfer-Encoding:[identity]]"},
		{2, true, []string{"text"}, "map[Transfer-Encoding:[identity]]"},
		{2, true, []string{"text", "", "text"}, "map[Content-Type:[text/plain; charset=utf-8] Transfer-Encoding:[identity]]"},
		{1, false, []string{"", "text"}, "map[Content-Type:[]]"},
		{1, false, []string{"text", "", "text"}, "map[Content-Type:[text/plain; charset=utf-8]]"},
	} {
		u, w, r := httptest.NewRecorder(), new(capture.Writer), httptest.NewRequest(http.MethodPost, "/", nil)
		r.ProtoMajor = test.major
		w.Begin(u, r, new(sendings), limit)
		if test.coding {
			w.Header().Set("Transfer-Encoding", "identity")
		}
		for _, part := range test.parts {
			if part == "" {
				w.Flush()
			}
			write(t, w, part)
		}
		w.Finish(false)
		w.Deliver(t.Context())
		if got := fmt.Sprint(u.Result().Header); got != test.want {
			t.Errorf("HTTP/%d, %q: %s, want %s", test.major, test.parts, got, test.want)
		}
	}
}

// onlyFlushError has the method of http.ResponseController alone.
type onlyFlushError struct{ http.ResponseWriter }

func (onlyFlushError) FlushError() error { return nil }

// A writer that cannot flush or hijack, below one that could, lets nothing out.
func TestWhatFailsBelowLetsNothingOut(t *testing.T) {
	u, outer, w := httptest.NewRecorder(), new(capture.Writer), new(capture.Writer)
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	outer.Begin(struct{ http.ResponseWriter }{u}, r, new(sendings), limit)
	w.Begin(outer, r, new(sendings), limit)
	w.WriteHeader(http.StatusServiceUnavailable)
	for name, err := range map[string]error{"Flush": w.FlushError(), "Hijack": hijack(w)} {
		if !errors.Is(err, http.ErrNotSupported) || w.Started() || outer.Started() {
			t.Errorf("%s: %v, started %t, %t", name, err, w.Started(), outer.Started())
		}
	}
	if !capture.CanFlush(onlyFlushError{u}) {
		t.Error("FlushError is not found")
	}
}
