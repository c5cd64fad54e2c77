package sqljournal_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// An operator's resolution of a run is the outcome in the journal too: it stands when Redis forgets.
func TestResolve(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		for mode := range modes {
			t.Run(mode+" responded", func(t *testing.T) {
				said := middleware.Responded(http.StatusAccepted, nil, []byte("said"))
				testResolve(t, modes[mode](d, t), said, http.StatusAccepted)
			})
			t.Run(mode+" nothing happened", func(t *testing.T) {
				testResolve(t, modes[mode](d, t), middleware.NothingHappened(), http.StatusCreated)
			})
		}
	})
}

func testResolve(t *testing.T, j journal.Journal, said middleware.Resolution, want int) {
	locker, server, stop := startLocker(lock.WithOpTimeout(10 * time.Second)) // a busy machine takes its time
	defer stop()
	works, ran := false, false
	once := middleware.New(locker, keyfunc.Header("Idempotency-Key"), middleware.WithJournal(j),
		middleware.WithAtMostOnce(), middleware.WithMaxDuration(time.Second))
	h := once.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ran = true
		if !works {
			middleware.FromContext(r.Context()).Unknown()
		}
		w.WriteHeader(http.StatusCreated)
	}))
	post := func() *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("pay"))
		r.Header.Set("Idempotency-Key", t.Name())
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for !ran { // the database may be too slow to begin the run, and its claim is then released in the background
		post()
		server.FastForward(time.Minute)
	}
	works = true
	key := locker.StorageKey(t.Name())
	for e := (journal.Entry{State: journal.Running}); e.State == journal.Running; {
		var err error
		if e, err = j.Look(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	info, err := locker.Inspect(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := once.Resolve(t.Context(), key, info.Token, said); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if w := post(); w.Code != want {
			t.Errorf("%d %s, want %d", w.Code, w.Body, want)
		}
		server.FlushAll()
	}
}
