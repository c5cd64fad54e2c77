package oncetest

import (
	"net/http"
	"time"
)

// scenario is one of the ways in which a request comes twice.
type scenario struct {
	name    string
	applies func(*Case) bool // nil: always
	run     func(*stage)
}

var scenarios = []scenario{
	{name: "double click", run: doubleClick},
	{name: "lost response", run: lostResponse},
	{name: "crash", run: crash},
	{name: "slow client", run: slowClient},
	{name: "other request", run: otherRequest, applies: func(c *Case) bool { return c.OtherRequest != nil }},
	{name: "unknown length", run: unknownLength, applies: func(c *Case) bool { return c.OtherRequest != nil }},
	{name: "other user", run: otherUser, applies: func(c *Case) bool { return c.OtherUser != nil }},
	{name: "panic", run: panicking}, // last: a Recoverer that prints the stack prints it below the other failures
}

// What to do about a fault.
const (
	adviceNoEffect = "Does Case.Request reach the handler, and does Case.Effects count what it does?"
	adviceHang     = "Does the handler wait for something that comes only after it?"
	adviceLate     = "A crash in between loses it, or a retry does it again: have the effect before you answer, and wait for " +
		"every goroutine that takes part in it. For work that takes longer, store an order for it, and answer with 202."
	adviceWrap = "Mount middleware.Idempotency around this route, on the Redis client that Case.Handler gets, " +
		"and check that the key function finds the key that Case.Request sends."
	adviceOnce    = adviceWrap + " If all that is so, something behind the middleware repeats the call, such as a retry in the handler."
	adviceUnknown = "Nobody can know whether the effect had happened. Use middleware.WithAtMostOnce, which then refuses the retry, " +
		"or a journal in the database that has the effect; or set Case.RunsAgain if that may happen."
	adviceRecover = "If middleware.Idempotency is mounted, the key was free at once. Mount the Recoverer outside of it: inside, it " +
		"makes a 500 of the panic, which counts as an answer. A handler that has had its effect must not call Discard."
	adviceOther = "Nothing outside of middleware.Idempotency may read the body without putting it back, and a " +
		"middleware.WithFingerprint must tell the two apart."
	adviceUser = "The key does not tell users apart. Put the user into it: keyfunc.Standard(keyfunc.User(...)), with " +
		"authentication mounted outside of the middleware."
)

// begin sends the first request of a scenario, and returns when it is over or waits has received. On a busy machine
// Redis may time out: if the request gets 503 and has no effect, begin tries again with a new key.
func (s *stage) begin(i *instance, f fault, waits <-chan struct{}) (x *exchange, ok bool) {
	s.t.Helper()
	const tries = 5
	for range tries {
		x = i.send(s.c.Request(s.key), f)
		select {
		case <-waits:
			return x, true
		case <-x.done:
		case <-time.After(time.Until(s.ends)):
			if s.happened() {
				s.failOver("there was an answer to the first request, which has had its effect. %s", adviceHang)
			} else {
				s.failOver("there was an answer to the first request, or an effect. %s", adviceNoEffect)
			}
			return x, false
		}
		if x.finalStatus() != http.StatusServiceUnavailable || s.effects() > 0 {
			break
		}
		s.key = newKey()
	}
	return x, s.hadEffect(x)
}

// hadEffect reports whether a first request that is over has had its effect. If not, the test fails.
func (s *stage) hadEffect(x *exchange) bool {
	s.t.Helper()
	if s.effects() > 0 {
		return true
	}
	if s.withoutLength && x.finalStatus() == http.StatusLengthRequired {
		s.t.Logf("oncetest: %s: not tried: the handler answered 411", s.name)
		return false
	}
	if x.succeeded() {
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if s.effects() > 0 {
				s.failf("the handler answered %s, and the effect happened only after that. %s", x, adviceLate)
				return false
			}
		}
	}
	s.failf("the first request was answered with %s, and the effect did not happen. %s", x, adviceNoEffect)
	return false
}

func doubleClick(s *stage) {
	s.t.Helper()
	pauses, resumed := make(chan struct{}), make(chan struct{})
	f := fault{answering: func(*exchange) {
		close(pauses)
		<-resumed
	}}
	s.sendWithin(f, pauses, resumed, "two requests with one key came at once", adviceOnce)
}

func slowClient(s *stage) {
	s.t.Helper()
	stuck, read := make(chan struct{}, 1), make(chan struct{})
	f := fault{sending: func() {
		select {
		case stuck <- struct{}{}:
		default:
		}
		<-read
	}}
	s.sendWithin(f, stuck, read, "the client did not read the response and sent the request again", adviceWrap)
}

// sendWithin sends a request whose run the fault pauses after its effect. When paused receives, sendWithin sends the request
// again, and then lets the first one go on, by closing resumed. done and advice are those of expectOne.
func (s *stage) sendWithin(f fault, paused <-chan struct{}, resumed chan struct{}, done, advice string) {
	s.t.Helper()
	i := s.start()
	first, ok := s.begin(i, f, paused)
	if !ok {
		close(resumed)
		return
	}
	second := i.send(s.c.Request(s.key), fault{})
	second.answered() // or it waits for the first
	close(resumed)
	if first.await() && second.await() {
		s.expectOne(done, second, advice)
	}
}

func lostResponse(s *stage) {
	s.t.Helper()
	i := s.start()
	first, ok := s.begin(i, fault{answering: (*exchange).disconnect}, nil)
	if !ok {
		return
	}
	if n := s.effects(); n > 1 {
		s.failf("one request was sent, answered with %s, and the effect happened %d times. %s", first, n, adviceOnce)
		return
	}
	if again, ok := i.do(s.c.Request); ok {
		s.expectOne("the response was lost and the request was sent again", again, adviceWrap)
	}
}

func crash(s *stage) {
	s.t.Helper()
	dying := s.start()
	dying.doomed.Store(true)
	defer dying.bury()
	if _, ok := s.begin(dying, fault{}, nil); !ok {
		return
	}
	s.leaseRunsOut()
	again, ok := s.start().do(s.c.Request)
	if ok && !(s.c.RunsAgain && s.effects() == 2) {
		s.expectOne("the process died after the effect, and when the lease had run out the request was sent again", again, adviceUnknown)
	}
}

func panicking(s *stage) {
	s.t.Helper()
	i := s.start()
	first, ok := s.begin(i, fault{answering: func(*exchange) { panic("oncetest: a panic after the effect") }}, nil)
	if !ok {
		return
	}
	if first.strike.Load() != nil {
		s.t.Logf("oncetest: panic: not tried: Case.Effects showed the effect only after the handler had answered")
		return
	}
	again := i.send(s.c.Request(s.key), fault{})
	early := again.answered()
	if n := s.effects(); n > 1 {
		again.await()
		s.failf("the handler panicked after the effect, the request was sent again at once, and the effect happened %d times. %s", n, adviceRecover)
		return
	}
	s.leaseRunsOut()
	if !early && !again.await() {
		return
	}
	again, ok = i.do(s.c.Request)
	if ok && !(s.c.RunsAgain && s.effects() == 2) {
		s.expectOne("the handler panicked after the effect, and when the lease had run out the request was sent again", again, adviceUnknown)
	}
}

func otherRequest(s *stage) {
	s.t.Helper()
	i := s.start()
	if _, ok := s.begin(i, fault{}, nil); !ok {
		return
	}
	other, ok := i.do(s.c.OtherRequest)
	switch {
	case !ok:
	case s.effects() > 1:
		s.failf("another request with the same key was answered with %s, and had an effect too. %s", other, adviceWrap)
	case other.succeeded():
		s.failf("another request with the same key had no effect, and was answered with %s. Its client takes that for a success. %s",
			other, adviceOther)
	}
}

// unknownLength is otherRequest with bodies that come in chunks. The middleware cannot notice that such a body was read
// before: then both requests seem to be empty, and alike.
func unknownLength(s *stage) {
	s.t.Helper()
	s.withoutLength = true
	c := *s.c
	c.Request, c.OtherRequest = withoutLength(s.c.Request), withoutLength(s.c.OtherRequest)
	s.c = &c
	otherRequest(s)
}

// withoutLength makes newRequest leave the length of the body open, unless there is no body.
func withoutLength(newRequest func(key string) *http.Request) func(key string) *http.Request {
	return func(key string) *http.Request {
		r := newRequest(key)
		if r.ContentLength > 0 {
			r.ContentLength, r.TransferEncoding = -1, []string{"chunked"}
			r.Header.Del("Content-Length")
		}
		return r
	}
}

func otherUser(s *stage) {
	s.t.Helper()
	i := s.start()
	if _, ok := s.begin(i, fault{}, nil); !ok {
		return
	}
	other, ok := i.do(s.c.OtherUser)
	switch {
	case !ok:
	case other.replayed():
		s.failf("another user who chose the same key got the response of the first. %s", adviceUser)
	case s.effects() < 2:
		s.failf("another user who chose the same key was answered with %s, and had no effect. %s", other, adviceUser)
	}
}
