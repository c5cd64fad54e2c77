package check_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fault is the one thing that a shop does wrong.
type fault string

// shop is a server of payments that is right but for its fault: it keeps keys in memory. Everything a check needs is
// there: delay, failures, samples, users, a second instance, an outage and a crash.
type shop struct {
	fault fault
	main  *httptest.Server
	also  *httptest.Server

	mu       sync.Mutex
	done     int                // effects
	hidden   int                // of these, not counted
	records  map[string]*record // by user, route and key
	orders   map[string]*record // by their body
	down     bool
	crash    context.Context // done when the process is killed
	killedBy context.CancelFunc
}

type record struct {
	fingerprint string
	ended       bool
	over        chan struct{} // closed when ended
	repeated    int           // how often it was asked for when it had ended
	status      int
	header      http.Header
	body        []byte
}

func newShop(t *testing.T, f fault) *shop {
	t.Helper()
	s := &shop{fault: f, records: map[string]*record{}, orders: map[string]*record{}}
	s.crash, s.killedBy = context.WithCancel(context.Background())
	start := func() *httptest.Server {
		server := httptest.NewUnstartedServer(s)
		server.Config.Protocols = new(http.Protocols)
		server.Config.Protocols.SetHTTP1(true)
		server.Config.Protocols.SetUnencryptedHTTP2(true)
		server.Start()
		t.Cleanup(server.Close)
		return server
	}
	s.main, s.also = start(), start()
	return s
}

func (s *shop) url(t *testing.T, path string) *url.URL {
	t.Helper()
	u, err := url.Parse(s.main.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Access-Control-Expose-Headers", "*")
	switch {
	case r.Method == http.MethodOptions:
		w.Header().Set("Access-Control-Allow-Headers", "*")
		w.WriteHeader(http.StatusNoContent)
	case strings.HasPrefix(r.URL.Path, "/control/"):
		s.control(strings.TrimPrefix(r.URL.Path, "/control/"))
	case r.Method == http.MethodGet:
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprint(w, s.done-s.hidden)
	case r.Method == http.MethodPost && (r.URL.Path == "/payments" || r.URL.Path == "/refunds"):
		s.post(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (s *shop) control(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch what {
	case "down":
		s.down = true
	case "up":
		s.down = false
	case "restart":
		s.killedBy()
		s.crash, s.killedBy = context.WithCancel(context.Background())
		for key, r := range s.records {
			if !r.ended {
				delete(s.records, key)
			}
		}
	}
}

// key parses the header: a structured-field string, or a bare key.
func key(r *http.Request) (string, bool) {
	lines := r.Header.Values("Idempotency-Key")
	if len(lines) != 1 || len(lines[0]) > 300 {
		return "", false
	}
	value, isQuoted := strings.CutPrefix(lines[0], `"`)
	if !isQuoted {
		return value, value != ""
	}
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '"':
			rest := value[i+1:]
			return b.String(), b.Len() > 0 && (rest == "" || strings.HasPrefix(rest, ";"))
		case c == '\\' && i+1 < len(value) && (value[i+1] == '"' || value[i+1] == '\\'):
			i++
			b.WriteByte(value[i])
		case c == '\\' || c < 0x20 || c > 0x7e:
			return "", false
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}

func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Should-Retry", fmt.Sprint(status == 409 || status >= 500))
	if status == 409 {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"status":%d,"title":%q}`, status, http.StatusText(status))
}

func (s *shop) post(w http.ResponseWriter, r *http.Request) {
	k, ok := key(r)
	if s.fault == "no quotes" && strings.Contains(r.Header.Get("Idempotency-Key"), `"`) {
		ok = false
	}
	if s.fault == "the quotes are characters" && len(r.Header.Get("Idempotency-Key")) > 255 {
		ok = false
	}
	body, err := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		return
	case !ok && s.fault == "malformed keys are no keys":
		s.answer(w, s.handle(r, body))
		return
	case !ok:
		refuse(w, 400)
		return
	case s.down:
		refuse(w, 503)
		return
	}
	id := strings.Join([]string{r.Header.Get("Authorization"), r.URL.Path, k}, "\x00")
	if s.fault == "the body is the key" {
		id = string(body)
	}
	locked, isLocked := strings.CutPrefix(string(s.fault), "locked ")
	fingerprint := r.URL.RawQuery + "\x00" + string(body)
	if isLocked {
		id, fingerprint = k, ""
	}
	known := s.records[id]
	if s.forgets(known) {
		known = nil
	}
	switch {
	case known == nil:
		s.run(w, r, id, fingerprint, body)
	case s.fault == "compares only what has ended" && !known.ended:
		s.mu.Unlock()
		<-known.over
		s.mu.Lock()
		s.replay(w, known)
	case known.fingerprint != fingerprint:
		refuse(w, 422)
	case !known.ended:
		refuse(w, 409)
	case isLocked && known.repeated < 2:
		known.repeated++
		status, _ := strconv.Atoi(locked)
		refuse(w, status)
	case s.fault == "refuses every repetition":
		known.repeated++
		refuse(w, 409)
	default:
		s.replay(w, known)
	}
}

// forgets reports whether the fault makes the shop run again.
func (s *shop) forgets(known *record) bool {
	return s.fault == "no protection" || known != nil && !known.ended && s.fault == "no lock"
}

// run runs the handler without the lock, as a real one does.
func (s *shop) run(w http.ResponseWriter, r *http.Request, id, fingerprint string, body []byte) {
	mine := &record{fingerprint: fingerprint, over: make(chan struct{})}
	defer close(mine.over)
	s.records[id] = mine
	result := s.handle(r, body)
	if result == nil {
		if s.fault != "a crash locks the key" && s.records[id] == mine {
			delete(s.records, id)
		}
		panic(http.ErrAbortHandler)
	}
	if result.status >= 500 {
		delete(s.records, id)
	} else {
		mine.status, mine.header, mine.body, mine.ended = result.status, result.header, result.body, true
	}
	s.answer(w, result)
}

// handle makes a payment. It is called with mu, and unlocks it while it waits. It returns nil if it has panicked, or
// was killed.
func (s *shop) handle(r *http.Request, body []byte) *record {
	crash, query := s.crash, r.URL.Query()
	s.mu.Unlock()
	delay := 5 * time.Millisecond
	switch {
	case query.Has("slow"):
		delay = 800 * time.Millisecond
	case s.fault == "no lock": // on a busy machine too, the second of two arrives while the first runs
		delay = 200 * time.Millisecond
	}
	killed := false
	select {
	case <-time.After(delay):
	case <-crash.Done():
		killed = true
	}
	s.mu.Lock()
	switch {
	case killed, query.Has("panic"):
		return nil
	case query.Has("fail"):
		return &record{status: 500}
	case !json.Valid(body):
		return &record{status: 400, header: http.Header{}}
	}
	if known := s.orders[string(body)]; known != nil && s.fault == "equal orders are one" {
		return known
	}
	if s.fault != "samples do nothing" || !query.Has("sample") {
		s.done++
	}
	if s.fault == "bob's effects are not counted" && r.Header.Get("Authorization") == "bob" {
		s.hidden++
	}
	result := &record{status: 201, header: http.Header{}, body: fmt.Appendf(nil, `{"id":"payment-%08d"}`, s.done)}
	result.header.Set("Content-Type", "application/json")
	result.header.Set("Location", fmt.Sprintf("/payments/%08d", s.done))
	if s.fault == "stored date" {
		result.header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	}
	result.header["Link"] = []string{"</a>", "</b>"}
	switch query.Get("sample") {
	case "binary":
		result.body = append([]byte{0xff, 0xfe}, result.body...)
	case "empty":
		result.status, result.body = 303, nil
	case "large":
		result.body = bytes.Repeat(result.body, 1<<20/len(result.body)+1)
	}
	s.orders[string(body)] = result
	return result
}

func (s *shop) replay(w http.ResponseWriter, known *record) {
	again := &record{status: known.status, header: known.header.Clone(), body: known.body}
	again.header.Set("Idempotent-Replayed", "true")
	switch s.fault {
	case "empty replay":
		again.body = nil
	case "another charset":
		again.header.Set("Content-Type", "Application/JSON;charset=utf-8")
	case "another type":
		again.header.Set("Content-Type", "text/html")
	case "lost header":
		again.header.Del("Location")
	}
	s.answer(w, again)
}

func (s *shop) answer(w http.ResponseWriter, r *record) {
	if r.status >= 400 {
		refuse(w, r.status)
		return
	}
	for name, values := range r.header {
		w.Header()[name] = slices.Clone(values)
	}
	w.Header().Set("Trailer", "X-Sum")
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body)
	w.Header().Set("X-Sum", fmt.Sprint(len(r.body)))
}
