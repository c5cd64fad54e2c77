package operate

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

func TestForget(t *testing.T) {
	s := openMini(t)
	s.post("live")
	live := s.key("live")
	s.change("forget", live).want(exitRefused, "the lease has not run out", "level=WARN")
	s.run("inspect "+live).want(exitDone, "held")
	s.change("forget -even-if-live", live).want(exitDone, "forgotten: it was held")
	s.run("inspect " + live).want(exitFree)

	key := s.strand("k1")
	token := s.token(key)
	forget := "forget -reason r " + key + " -token "
	s.run(forget+someToken).want(exitRefused, "does not hold")
	s.run(forget+token[1:]).want(exitRefused, "no token that Inspect returns")
	s.change("forget", key).want(exitDone, "forgotten: it was abandoned; the next try runs, unless a journal",
		"level=INFO", "msg=forget", "user=ops", `reason="ticket 7"`, "key="+key, "token="+token, "before=abandoned")
	s.run(forget+token).want(exitFree, "nothing was changed")
	if w := s.post("k1"); w.Code != http.StatusCreated {
		t.Errorf("the next try got %d", w.Code)
	}
	s.run(forget + token).want(exitRefused) // it is a value now
	s.change("forget -json", key).want(exitDone, `{"key":"`+key+`","result":"forgotten","state_before":"settled"}`)
}

func TestResolve(t *testing.T) {
	s := openMini(t)
	key := s.strand("k1")
	token := s.token(key)
	resolve := "resolve -reason r " + key + " -token " + token + " "
	s.run(resolve+"-status 102").want(exitUsage, "102 is no final status")
	s.run(resolve+"-status 200 -header", "Set-Cookie: a=b").want(exitUsage, "WithCookies")
	s.run(resolve+"-failed declined").want(exitUsage, "the run is an HTTP request's, which leaves a response")
	s.run("inspect "+key).want(exitDone, "abandoned")
	s.run(resolve+"-json -retention 48h -status 201 -body-file "+writeFile(t, `{"id":7}`), "-header", "Content-Type: application/json",
		"-header", "Location:/payments/7", "-header", "Link: <a>", "-header", "link: <b>").
		want(exitDone, `"result":"resolved","state_before":"abandoned"}`, "msg=resolve", "user=ops", "reason=r", "before=abandoned").
		hides(`{"id":7}`)
	w := s.post("k1")
	if w.Code != 201 || w.Body.String() != `{"id":7}` || w.Header().Get("Idempotent-Replayed") != "true" ||
		w.Header().Get("Location") != "/payments/7" || len(w.Header()["Link"]) != 2 || s.runs != 1 {
		t.Errorf("%d %s %v, %d runs", w.Code, w.Body, w.Header(), s.runs)
	}
	s.run("inspect "+key).want(exitDone, "settled", "ends     in 4")
	for _, said := range []string{"resolve -status=201", "resolve -nothing-happened"} {
		s.run(said+" -reason r "+key+" -token "+token).want(exitRefused, "it is settled", "level=WARN")
		s.change(said, key).want(exitRefused, "the run has its outcome, and Resolve replaces none").hides("does not hold")
	}
	s.change("resolve -nothing-happened", s.strand("k2")).want(exitDone, "freed: it was abandoned; the next try runs\n")
	if w := s.post("k2"); w.Code != http.StatusCreated || s.runs != 3 {
		t.Errorf("%d, %d runs", w.Code, s.runs)
	}
}

// A run with a journal is left to the journal.
func TestResolveRefusesJournals(t *testing.T) {
	s := openMini(t, middleware.WithJournal(rowsJournal{}))
	key := s.strand("k1")
	for _, said := range []string{"resolve -nothing-happened", "resolve -status=200"} {
		s.change(said, key).want(exitRefused, "journal", withDrivers)
	}
	s.run("inspect "+key).want(exitDone, "abandoned")
}

// fault: an operator gives a function's run a response. Expected: the error says that it is a function's, not that it is
// damaged. Its value or its error ends the run, and -nothing-happened frees the key.
func TestFunctions(t *testing.T) {
	s := openMini(t)
	client, key := redistest.NewClient(t, strings.TrimPrefix(s.url, "redis://")), s.locker.StorageKey("charge")
	strand := func() {
		note := (&record.Codec{Door: record.Value}).EncodeNote(nil, key, record.Note{})
		claim, err := s.locker.Claim(t.Context(), "charge", note, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		claim.Lease.Abandon()
		s.elapse(2*time.Minute + time.Second)
	}
	strand()
	s.run("inspect "+key).want(exitDone, "abandoned: a function ended without an outcome; retries get once.ErrOutcomeUnknown", "run      of a function")
	bare, value := writeFile(t, "paid by hand"), writeFile(t, `"paid by hand"`)
	for line, want := range map[string]string{
		"-status 201":                      "the run is a function's (package once), which leaves a value or an error",
		"-value " + bare:                   "-value: this is not JSON; if the service has once.WithCodec, add -raw",
		"-failed declined -value " + value: "give one of",
		"-raw -value " + writeFile(t, strings.Repeat("x", 1<<20+1)): "more than 1048576 bytes",
	} {
		s.change("resolve "+line, key).want(exitUsage, want)
	}
	for _, said := range []struct{ flags, gets, stored string }{
		{"-retention 48h -value " + value, "the value for 48h0m0s", `"paid by hand"`},
		{"-raw -value " + bare, "the value for 24h0m0s", "paid by hand"},
		{"-failed declined", "the error for 24h0m0s", "declined"},
	} {
		s.change("resolve "+said.flags, key).want(exitDone, "resolved: it was abandoned; every retry gets "+said.gets)
		s.run("inspect "+key).want(exitDone, "settled: retries get the stored value or error", "stored   the result of a function; completed 20")
		if got := client.Get(t.Context(), key).Val(); !strings.Contains(got, said.stored) {
			t.Errorf("%s: %q, want %s", said.flags, got, said.stored)
		}
		s.change("forget", key).want(exitDone)
		strand()
	}
	s.change("resolve -nothing-happened", key).want(exitDone, "freed")
}

// An operator asks by a lock's name who holds it, and frees it. Nothing speaks of a request or a journal, also not if the lock
// holds the value of Lease.Settle, which is no record of a run.
func TestLock(t *testing.T) {
	s := openMini(t)
	run := func(code int, want, line string, more ...string) {
		t.Helper()
		s.run(line, append([]string{"-namespace", "shop", "-lock", "nightly report"}, more...)...).want(code, want).
			hides("stored", "retries", "journal", "run      ")
	}
	key := s.locker.StorageKey("nightly report")
	const isFree = "\nstate    free: nobody holds it, or its name is mistyped; the next caller gets it\n"
	run(exitFree, "key      "+key+"\nmade of  -namespace \"shop\" -lock \"nightly report\""+isFree, "inspect")
	lease, err := s.locker.Acquire(lock.NewOwnerContext(t.Context(), `batch-7 "nightly"`), "nightly report")
	if err != nil {
		t.Fatal(err)
	}
	run(exitDone, "state    held: it is a lock, and its holder is at work", "inspect")
	run(exitDone, `"owner":"batch-7 \"nightly\""`, "inspect -json")
	s.run("scan -rate 100000 -namespace shop").want(exitDone, key, `ago by batch-7 "nightly"`)
	change := "-reason r -token " + lease.Token()
	run(exitRefused, "the lease has not run out", "forget "+change)
	run(exitDone, "forgotten: it was held; the next caller gets it", "forget -even-if-live "+change)
	if lease, err = s.locker.Acquire(t.Context(), "nightly report"); err != nil {
		t.Fatal(err)
	}
	if err := lease.Settle(t.Context(), []byte("done at 4"), time.Hour); err != nil {
		t.Fatal(err)
	}
	run(exitDone, "settled: its holder has settled it (lock.Lease.Settle); until this ends, callers get lock.ErrSettled", "inspect")
	change = "-reason r -token " + s.token(key)
	run(exitDone, "forgotten: it was settled; the next caller gets it", "forget "+change)
	run(exitFree, "nothing was changed", "forget "+change)

	// A lock has no row. The journal is not asked, and a Redis that does not answer is not replaced by it.
	for redis, want := range map[string]int{s.url: exitFree, "redis://127.0.0.1:1": exitFailed, "none": exitUsage} {
		onceguard(t, rowsJournal{}.env(), "inspect -journal any -namespace shop -lock nightly -redis "+redis).want(want).hides("journal ")
	}
}
