package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

const patience = time.Minute // bounds every wait: only a failing test waits this long

func TestMain(m *testing.M) {
	redistest.Main(m, redistest.Program{Name: "server", Run: func(args []string, in io.Reader, out io.Writer) error {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Fprintln(out, listener.Addr())
		ctx, stop := context.WithCancel(context.Background())
		go func() {
			_, _ = io.Copy(io.Discard, in)
			stop()
		}()
		return run(ctx, listener, args[0], patience)
	}})
}

// browser is a client with cookies.
type browser struct {
	t       *testing.T
	process *redistest.Process
	url     string
	client  *http.Client
}

// start starts a server in a process of its own, with an embedded Redis if the URL is empty.
func start(t *testing.T, redisURL string) *browser {
	t.Helper()
	process := redistest.Run(t, "server", redisURL)
	return newBrowser(t, process, "http://"+process.Line(t))
}

func newBrowser(t *testing.T, process *redistest.Process, url string) *browser {
	jar, _ := cookiejar.New(nil) // which returns no error
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &browser{t, process, url, &http.Client{
		Transport: transport, Jar: jar, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

type response struct {
	status      int
	replayed    bool
	place, body string
}

// do sends a request with pairs of header names and values.
func (b *browser) do(method, path, body string, pairs ...string) (got response) {
	b.t.Helper()
	r, err := http.NewRequest(method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i < len(pairs); i += 2 {
		r.Header.Set(pairs[i], pairs[i+1])
	}
	res, err := b.client.Do(r)
	if err != nil {
		b.t.Error(err)
		return got
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Error(err)
	}
	return response{res.StatusCode, res.Header.Get("Idempotent-Replayed") == "true", res.Header.Get("Location"), string(text)}
}

const (
	ann, bob = "Basic YW5uOg==", "Basic Ym9iOg=="
	euros    = `{"amount":1250,"currency":"EUR"}`
)

func (b *browser) pay(user, key, path, body string) response {
	b.t.Helper()
	return b.do("POST", path, body, "Authorization", user, "Idempotency-Key", key, "Content-Type", "application/json")
}

func (b *browser) want(what string, got response, status int, replayed bool) response {
	b.t.Helper()
	if got.status != status || got.replayed != replayed {
		b.t.Errorf("%s: got %d %s, replayed %v; want %d, %v", what, got.status, got.body, got.replayed, status, replayed)
	}
	return got
}

func TestPayments(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"embedded": "", "redis": "redis://" + redistest.Start(t).Addr()} {
		b := start(t, url)
		b.want(name, b.do("GET", "/healthz", ""), 200, false)
		first := b.want("first", b.pay(ann, "k1", "/payments", euros), 201, false)
		again := b.want("again", b.pay(ann, "k1", "/payments", euros), 201, true)
		if again != (response{201, true, first.place, first.body}) {
			t.Errorf("got %+v, then %+v", first, again)
		}
		bobs := b.want("another user", b.pay(bob, "k1", "/payments", euros), 201, false)
		for _, c := range []struct {
			what, user, key, path, body string
			status                      int
		}{
			{"another amount", ann, "k1", "/payments", `{"amount":1,"currency":"EUR"}`, 422},
			{"no key", ann, "", "/payments", euros, 400},
			{"nobody", "", "k1", "/payments", euros, 401},
			{"no JSON", ann, "k2", "/payments", `amount=1`, 400},
			{"no amount", ann, "k3", "/payments", `{"amount":0,"currency":"EUR"}`, 422},
			{"no currency", ann, "k4", "/payments", `{"amount":1}`, 422},
		} {
			b.want(c.what, b.pay(c.user, c.key, c.path, c.body), c.status, false)
		}
		if got := b.do("GET", first.place, "", "Authorization", ann); got.body != first.body {
			t.Errorf("the payment: got %+v", got)
		}
		b.want("another user's payment", b.do("GET", first.place, "", "Authorization", bob), 404, false)
		if got := b.do("GET", "/payments", "", "Authorization", bob).body; got != "["+strings.TrimSpace(bobs.body)+"]\n" {
			t.Errorf("bob's payments: got %s, want only %s", got, bobs.body)
		}
	}
}

// A request that runs when the process is told to stop is still answered, and an open page does not hold the process up.
func TestShutDown(t *testing.T) {
	t.Parallel()
	b := start(t, "")
	events, err := b.client.Get(b.url + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	answers := make(chan response, 2)
	for range 2 {
		go func() { answers <- b.pay(ann, "k1", "/payments?delay=6s", euros) }()
	}
	b.want("the duplicate", <-answers, 409, false) // the other request is in the handler
	if err := b.process.Wait(t); err != nil {
		t.Error(err)
	}
	b.want("the one that ran", <-answers, 201, false)
}

// Without Redis the server starts, and takes nothing.
func TestRedisIsDown(t *testing.T) {
	t.Parallel()
	b := start(t, "redis://127.0.0.1:1")
	b.want("healthz", b.do("GET", "/healthz", ""), 503, false)
	b.want("POST", b.pay(ann, "k1", "/payments", euros), 503, false)
}

// If the time is over before the payment is made, nothing is paid, and the key is free for a retry, even with
// WithAtMostOnce.
func TestPaymentTimesOut(t *testing.T) {
	t.Parallel()
	locker := lock.New(redistest.Mini(t).Client(t), "test", lock.WithOpTimeout(patience))
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	made := ledger[payment]{}
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.Anonymous()),
		middleware.WithAtMostOnce(), middleware.WithMaxDuration(10*time.Millisecond))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/payments?delay=10s", strings.NewReader(euros))
		r.Header.Set("Idempotency-Key", "k1")
		w := httptest.NewRecorder()
		once(createPayment(&made)).ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Idempotent-Replayed") != "" || len(made.of("")) > 0 {
			t.Errorf("got %d %v, paid %v; want 503 from the handler", w.Code, w.Header(), made.of(""))
		}
	}
}

var hidden = regexp.MustCompile(`<input type="hidden" name="idempotency_key" value="([^"]*)">`)

// Two clicks place one order, and both are redirected to it. A visitor needs a cookie, and sees only their own orders.
// conformance: 51
func TestDoubleClick(t *testing.T) {
	t.Parallel()
	b := start(t, "")
	order := func(key, quantity string) response {
		form := url.Values{"idempotency_key": {key}, "item": {"<tea>"}, "quantity": {quantity}}.Encode()
		return b.do("POST", "/orders", form, "Content-Type", "application/x-www-form-urlencoded")
	}
	load := func() string { return hidden.FindStringSubmatch(b.do("GET", "/", "").body)[1] }
	key := load()
	first := b.want("first click", order(key, "2"), 303, false)
	if second := b.want("second click", order(key, "2"), 303, true); second.place != first.place {
		t.Errorf("second click: to %s, want %s", second.place, first.place)
	}
	b.want("back, and another quantity", order(key, "3"), 422, false)
	b.want("no quantity", order(load(), "0"), 422, false)
	if got := b.do("GET", first.place, ""); !strings.Contains(got.body, "2 × &lt;tea&gt;") {
		t.Errorf("the order: got %+v", got)
	}
	if other := b.want("loaded again", order(load(), "2"), 303, false); other.place == first.place {
		t.Error("a form that was loaded again has placed no order")
	}
	if got := strings.Count(b.do("GET", "/", "").body, `<a href="/orders/`); got != 2 {
		t.Errorf("orders on the page: got %d, want 2", got)
	}
	b.want("another site", b.do("POST", "/demo/start-over", "", "Sec-Fetch-Site", "cross-site"), 403, false)
	b = newBrowser(t, b.process, b.url)
	b.want("without a cookie", order(key, "2"), 403, false)
	b.want("another visitor", b.do("GET", first.place, ""), 404, false)
}

// sold returns how often each shop has charged, as the stream of events tells it to the page.
func (b *browser) sold() string {
	b.t.Helper()
	res, err := b.client.Get(b.url + "/events")
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	var state struct {
		Records []struct {
			Lane   string
			RunEnd float64
		}
	}
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "data: ") {
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(lines.Text(), "data: ")), &state); err != nil {
		b.t.Fatal(err)
	}
	charged := map[string]int{}
	for _, r := range state.Records {
		if r.RunEnd > 0 {
			charged[r.Lane]++
		}
	}
	return fmt.Sprint(charged["unprotected"], " ", charged["protected"])
}

// The shops of the page: what each button sends, without a browser.
func TestShops(t *testing.T) {
	t.Parallel()
	b := start(t, "")
	b.do("GET", "/", "") // for its cookie
	pay := func(lane, key, body string, status int, replayed bool, pairs ...string) {
		t.Helper()
		pairs = append(pairs, "Idempotency-Key", key, "Content-Type", "application/json")
		b.want(lane, b.do("POST", "/demo/"+lane+"/orders", body, pairs...), status, replayed)
	}
	const one = `{"quantity":1}`
	for i := range 2 {
		pay("unprotected", "k1", one, 201, false)
		pay("protected", "k1", one, 201, i > 0)
	}
	pay("protected", "k1", one, 201, true, "X-Instance", "2", "Prefer", "wait=0")
	pay("protected", "k1", `{"quantity":5}`, 422, false)
	pay("protected", "k2", `{"quantity":10}`, 400, false)
	if got := b.sold(); got != "2 1" {
		t.Errorf("sold %s, want 2 1", got)
	}
	b.want("empty Redis", b.do("POST", "/demo/redis/empty", ""), 200, false)
	pay("protected", "k1", one, 201, false)
	if got := b.sold(); got != "2 2" {
		t.Errorf("sold %s without Redis's data, want 2 2", got)
	}
	b.do("POST", "/demo/start-over", "")
	if got := b.sold(); got != "0 0" {
		t.Errorf("sold %s after starting over", got)
	}
}
