package main

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"
)

// refusalDefects refuse wrongly: a duplicate of a running request, a failed request, a browser.
var refusalDefects = []defect{
	// The 409 of a running request does not say when to retry.
	d("retry-after-missing", "inflight/retry-after",
		problems(func(a *response) { a.Header.Del("Retry-After") })),
	// A duplicate of a running request gets 500.
	d("running-500", "inflight/answer", running(func(*call) *response { return problem(500, "unknown error") })),
	// A duplicate of a running request is told that all is well.
	d("running-200", "once/concurrent once/instances-concurrent inflight/answer load/shuffled",
		running(func(*call) *response { return &response{Status: 200, Body: []byte(`{"state":"running"}`)} })),
	// A duplicate of a slow request gets no answer.
	d("running-hangs", "inflight/time", running(func(c *call) *response {
		if !c.URL.Query().Has("slow") {
			return answer(c)
		}
		<-c.Context().Done()
		return nil
	}), hangs),
	// After a duplicate of a running request the key is answered by 409 for ever.
	d("running-for-ever", "once/client-leaves-answered inflight/then-replay", func(s *server) {
		var stuck sync.Map // by the record's channel
		s.answer = func(c *call) *response {
			if _, ok := stuck.Load(c.found.ended); ok || c.found.response == nil {
				stuck.Store(c.found.ended, true)
				c.found.response = nil
			}
			return answer(c)
		}
	}, locks),
	// The response is sent and not stored: a repetition gets 409 for ever.
	d("never-unlocked", `once/client-leaves-answered replay/answered replay/error mismatch/whitespace
		inflight/then-replay errors/failed-answered store/remembers crash/at-most-once crash/after-answer`,
		unstored(false, func(*call) bool { return true }), locks),
	// A request that does not pass validation locks its key.
	d("invalid-locks", "replay/error", unstored(false, func(c *call) bool { return c.reply.Status == 400 }), locks),
}

// keyDefects read the key wrongly.
var keyDefects = []defect{
	// Keys that differ in case are the same key.
	d("key-folded", "key/value-case", keys(strings.ToLower)),
	// Only the first 200 characters of a key count.
	d("key-truncated", "key/length-distinct", keys(func(key string) string { return key[:min(len(key), 200)] })),
	// A key of more than 255 characters is accepted, and cut to 255.
	d("key-long-cut", "key/length-distinct", reads(func(field string) string {
		if len(field) > 257 {
			return strings.Trim(field, `"`)[:255]
		}
		return field
	})),
	// k1 and "k1" are different keys.
	d("key-quotes-kept", "key/spelling", fields(func(field string) (string, error) {
		key, err := parseField(field)
		return strings.Repeat(`"`, strings.Count(field, `"`)) + key, err
	})),
	// Whatever the header has is the key: empty, malformed, too long.
	d("key-anything", "key/spelling", fields(func(field string) (string, error) { return field, nil })),
	// The empty string is a key like any other.
	d("key-empty-accepted", "key/spelling", reads(func(field string) string {
		if strings.Trim(field, `"`) == "" {
			return "empty"
		}
		return field
	})),
	// An empty key is taken for none, and the request runs unprotected.
	d("key-empty-unprotected", "key/spelling", unkeyed(func(c *call) bool {
		return c.Header[keyHeader] != nil && strings.Trim(c.Header[keyHeader][0], `"`) == ""
	})),
	// A request without a key runs, gets 403, is refused after it has run.
	d("key-missing-runs", "key/missing-runs", unkeyed(func(c *call) bool { return c.Header[keyHeader] == nil })),
	d("key-missing-403", "key/missing", status(400, errNoKey.Error(), 403)),
	d("key-missing-late", "key/missing-not-run", refusesLate(errNoKey)),
	// A malformed key is answered by 500, is refused after the request has run.
	d("key-odd-500", "key/too-long key/spelling", oddKeyIs500),
	d("key-odd-late", "key/too-long key/never-unprotected key/refused-not-run", refusesLate(errBadKey)),
	// Of two fields, or of a list, the first is taken.
	d("key-first-of-two", "key/spelling", requests(func(c *call) {
		c.Header[keyHeader] = c.Header[keyHeader][:min(1, len(c.Header[keyHeader]))]
	})),
	d("key-first-of-list", "key/spelling", reads(func(field string) string {
		first, _, _ := strings.Cut(field, ",")
		return first
	})),
	// Other characters than ASCII, and escapes that there are not, are accepted.
	d("key-non-ascii", "key/spelling", reads(func(field string) string { return strings.ReplaceAll(field, "é", "x") })),
	d("key-escapes-any", "key/spelling", reads(func(field string) string { return strings.ReplaceAll(field, `\x`, "x") })),
	// The closing quote may be missing.
	d("key-unterminated", "key/spelling", reads(func(field string) string {
		if strings.Count(field, `"`) == 1 {
			field += `"`
		}
		return field
	})),
	// "k1";p=1 is refused; so is "a\"b"; a key without quotes; a key in quotes.
	d("key-parameters-refused", "key/spelling", refuses(has(";"))),
	d("key-escapes-refused", "key/escaped", refuses(has(`\`))),
	d("key-bare-refused", "key/bare", refuses(func(field string) bool { return !strings.HasPrefix(field, `"`) })),
	d("key-quoted-refused", "key/quoted", refuses(has(`"`))),
	// A key has 36 characters and no quotes; any other is answered by 500.
	d("key-36", "key/quoted key/length-255 key/too-long key/spelling",
		all(refuses(func(field string) bool { return len(field) != 36 }), oddKeyIs500)),
	// A GET with a key is run, stored and replayed like a POST.
	d("key-on-get", "key/get", requests(func(c *call) {
		if c.Header[keyHeader] != nil && c.Method == "GET" {
			c.Method = "POST"
		}
	})),
}

var oddKeyIs500 = status(400, errBadKey.Error(), 500)

// storeDefects lose what they know, or go on without it.
var storeDefects = []defect{
	// The records are in memory only.
	d("restart-forgets", "crash/at-most-once crash/after-answer", ends(process.end)),
	// The response is stored, and then the payment is made.
	d("stored-before-effect", "crash/no-wrong-success", all(idle, committed(func(p process, c *call) error {
		made := c.made
		c.made = nil
		if err := p.commit(c); err != nil {
			return err
		}
		work(c)
		c.made = made
		return p.pay(c)
	}))),
	// The payment is made, and then the response is stored.
	d("stored-after-effect", "crash/at-most-once", all(idle, committed(func(p process, c *call) error {
		if err := p.pay(c); err != nil {
			return err
		}
		work(c)
		return p.commit(c)
	}))),
	// The response is sent, and stored a moment later.
	d("stored-after-answer", "crash/at-most-once crash/after-answer",
		ends(func(p process, c *call) { p.endLater(3*gap, c) })),
	// A response of 1 MiB and more is not stored, and its key is freed.
	d("large-runs-again", "once/samples replay/body replay/location replay/headers replay/marked",
		unstored(true, func(c *call) bool { return len(c.reply.Body) >= 1<<20 })),
	// After a crash the key of a request that ran is answered by 409 for ever, or as a success.
	d("crash-locks", "crash/answered", persists(nil), locks),
	d("crash-success", "crash/no-wrong-success",
		persists(&response{Status: 201, Header: http.Header{}, Body: []byte(`{"id":"pending"}`)})),
	// A request that ends with a 5xx frees its key, although the payment is made.
	d("failed-frees", "errors/failed-once", unstored(true, func(c *call) bool { return c.reply.Status >= 500 })),
	// The repetition of a request that failed is told that all is well.
	d("failed-success", "errors/failed-not-success", func(s *server) {
		s.free = func(c *call) {
			c.reply = &response{Status: 200, Header: http.Header{}, Body: []byte("{}")}
			_ = s.store.commit(&call{scope: c.scope, print: c.print, mine: c.mine, reply: c.reply})
		}
	}),
	// After a panic of its handler the key is answered by 409 for ever.
	d("panic-locks", "errors/failed-answered", func(s *server) { s.free = func(*call) {} }, locks),
	// While the store is down, requests run unprotected.
	d("down-runs", "store/down-once store/down-completed", all(
		claimed(func(p process, c *call) error {
			err := p.claim(c)
			if errors.Is(err, errDown) {
				c.mine, err = newRecord(c.print), nil
			}
			return err
		}), committed(func(p process, c *call) error {
			err := p.commit(c)
			if errors.Is(err, errDown) {
				defer p.lock()()
				p.lines, err = append(p.lines, line{payments: c.made}), nil
			}
			return err
		}))),
	// While the store is down, requests hang.
	d("down-hangs", "store/down-answered", claimed(func(p process, c *call) (err error) {
		for err = p.claim(c); errors.Is(err, errDown); err = p.claim(c) {
			time.Sleep(gap)
		}
		return err
	}), hangs),
	// While the store is down, requests do not run and are told that all is well.
	d("down-success", "store/down-completed", status(503, "", 202)),
	// After the store was down, nothing runs any more.
	d("down-for-ever", "store/recovers store/remembers load/shuffled", func(s *server) {
		var broken sync.Once
		dead := make(chan bool)
		s.claim = func(c *call) error {
			err := s.store.claim(c)
			if errors.Is(err, errDown) {
				broken.Do(func() { close(dead) })
			}
			select {
			case <-dead:
				return errDown
			default:
				return err
			}
		}
	}, locks),
	// Each instance keeps the last 75 records.
	d("few-records", "load/shuffled", func(s *server) {
		kept, turn := make(chan string, 75), make(chan bool, 1)
		s.commit = func(c *call) error {
			turn <- true
			defer func() { <-turn }()
			if len(kept) == cap(kept) {
				s.store.forget(<-kept)
			}
			kept <- c.scope
			return s.store.commit(c)
		}
	}),
}

// idle leaves the work to the commit.
func idle(s *server) { s.work = func(*call) {} }

// persists writes each claim to a line, with what a restart is to find there.
func persists(found *response) fault {
	return claimed(func(p process, c *call) error {
		err := p.claim(c)
		if err == nil && c.found == nil {
			err = p.write(line{scope: c.scope, print: c.print, response: found})
		}
		return err
	})
}
