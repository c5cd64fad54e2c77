package operate

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/once"
)

func TestForget(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
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
	})
}

func TestResolve(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
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
	})
}

// A run with a journal is left to the journal.
func TestResolveRefusesJournals(t *testing.T) {
	s := openMini(t, middleware.WithJournal(forgetful{}))
	key := s.strand("k1")
	for _, said := range []string{"resolve -nothing-happened", "resolve -status=200"} {
		s.change(said, key).want(exitRefused, "journal", withDrivers)
	}
	s.run("inspect "+key).want(exitDone, "abandoned")
}

// forgetful is a transactional journal in which nothing was ever committed.
type forgetful struct{ journal.Journal }

func (forgetful) Namespace() string { return "shop" }

func (forgetful) IsIntent() bool { return false }

func (forgetful) Begin(context.Context, journal.Run) (e journal.Entry, err error) { return e, err }

func (forgetful) Look(context.Context, string) (e journal.Entry, err error) { return e, err }

// fault: an operator gives a function's run a response. Expected: the error says that it is a function's, not that it is
// damaged. Its value or its error ends the run, and -nothing-happened frees the key.
func TestFunctions(t *testing.T) {
	s := openMini(t)
	codec := once.WithCodec(func(v any) ([]byte, error) { return []byte(v.(string)), nil }, func(b []byte, v any) error {
		*v.(*string) = string(b)
		return nil
	})
	plain, coded := once.New(s.locker, once.WithAtMostOnce()), once.New(s.locker, once.WithAtMostOnce(), codec)
	key, runs := "", 0
	charge := func(guard *once.Guard, err error) (string, bool, error) {
		return once.Do(t.Context(), guard, once.Key{Operation: "charge", Scope: "ann", ID: "1"}, func(ctx context.Context) (string, error) {
			runs++
			key = once.FromContext(ctx).Key()
			return "paid", err
		})
	}
	strand := func(guard *once.Guard) {
		if key != "" {
			s.change("forget", key)
		}
		if _, _, err := charge(guard, once.Unknown(errors.New("no reply"))); err == nil {
			t.Fatal("no error")
		}
		s.elapse(2*time.Minute + time.Second)
	}
	strand(plain)
	s.run("inspect "+key).want(exitDone, "abandoned: a function ended without an outcome; retries get once.ErrOutcomeUnknown", "run      of a function")
	s.run("inspect -json "+key).want(exitDone, `"run":"function"`)
	s.change("resolve -status 201", key).want(exitUsage, "the run is a function's (package once), which leaves a value or an error")
	bare, value := writeFile(t, "paid by hand"), writeFile(t, `"paid by hand"`)
	s.change("resolve -value "+bare, key).want(exitUsage, "-value: this is not JSON; if the service has once.WithCodec, add -raw")
	s.change("resolve -raw -value "+writeFile(t, strings.Repeat("x", 1<<20+1)), key).want(exitUsage, "more than 1048576 bytes")
	s.change("resolve -failed declined -value "+value, key).want(exitUsage, "give one of")
	s.run("inspect "+key).want(exitDone, "abandoned")
	s.change("resolve -retention 48h -value "+value, key).want(exitDone, "resolved: it was abandoned; every retry gets the value for 48h0m0s")
	if paid, replayed, err := charge(plain, nil); paid != "paid by hand" || !replayed || err != nil || runs != 1 {
		t.Errorf("%q, %t, %v, %d runs", paid, replayed, err, runs)
	}
	s.run("inspect "+key).want(exitDone, "settled: retries get the stored value or error", "stored   the result of a function; completed 20")

	strand(coded)
	s.change("resolve -raw -value "+bare, key).want(exitDone, "every retry gets the value")
	if paid, replayed, err := charge(coded, nil); paid != "paid by hand" || !replayed || err != nil {
		t.Errorf("%q, %t, %v", paid, replayed, err)
	}
	strand(plain)
	s.change("resolve", key, "-failed", "the card was declined").want(exitDone, "every retry gets the error for 24h0m0s")
	var stored *once.StoredError
	if _, replayed, err := charge(plain, nil); !replayed || !errors.As(err, &stored) || stored.Text != "the card was declined" {
		t.Errorf("%t, %v", replayed, err)
	}
	strand(plain)
	s.change("resolve -nothing-happened", key).want(exitDone, "freed")
	if _, replayed, err := charge(plain, nil); replayed || err != nil || runs != 5 {
		t.Errorf("%t, %v, %d runs", replayed, err, runs)
	}
}

// An operator asks by a lock's name who holds it, and frees it. Nothing speaks of a request or a journal, also not if the lock
// holds the value of Lease.Settle, which is no record of a run.
func TestLock(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		run := func(code int, want, line string, more ...string) {
			t.Helper()
			s.run(line, append([]string{"-namespace", "shop", "-lock", "nightly report"}, more...)...).want(code, want).
				hides("stored", "retr", "journal", "run ")
		}
		key := s.locker.StorageKey("nightly report")
		const isFree = "\nstate    free: nobody holds it, or its name is mistyped; the next caller gets it\n"
		run(exitFree, "key      "+key+"\nmade of  -namespace \"shop\" -lock \"nightly report\""+isFree, "inspect")
		lease, err := s.locker.Acquire(lock.NewOwnerContext(t.Context(), `batch-7 "nightly"`), "nightly report")
		if err != nil {
			t.Fatal(err)
		}
		run(exitDone, "state    held: it is a lock, and its holder is at work", "inspect")
		run(exitDone, "owner    batch-7 \"nightly\"\n", "inspect")
		run(exitDone, `"owner":"batch-7 \"nightly\""`, "inspect -json")
		s.run("scan -rate 100000 -namespace shop").want(exitDone, key, `ago by batch-7 "nightly"`)
		change := "-reason r -token " + lease.Token()
		s.run("forget "+change, "-namespace", "shop", "-lock", "nightly report").want(exitRefused, "the lease has not run out")
		run(exitDone, "forgotten: it was held; the next caller gets it", "forget -even-if-live "+change)
		if lease, err = s.locker.Acquire(t.Context(), "nightly report"); err != nil {
			t.Fatal(err)
		}
		if err := lease.Settle(t.Context(), []byte("done at 4"), time.Hour); err != nil {
			t.Fatal(err)
		}
		run(exitDone, "settled: its holder has settled it (lock.Lease.Settle); until this ends, callers get lock.ErrSettled", "inspect")
		run(exitDone, `"state":"settled"`, "inspect -json")
		change = "-reason r -token " + s.token(key)
		run(exitDone, "forgotten: it was settled; the next caller gets it", "forget "+change)
		run(exitFree, "nothing was changed", "forget "+change)
	})
}
