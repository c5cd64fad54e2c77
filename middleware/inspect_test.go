package middleware_test

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// inspectBy inspects ann's payment by a Middleware with these options.
func (s *site) inspectBy(opts ...middleware.Option) (middleware.Inspection, error) {
	storageKey := s.locker.StorageKey(keyfunc.StandardKey("ann", http.MethodPost, "/payments", "k1"))
	return middleware.New(s.locker, keyfunc.Anonymous(), opts...).Inspect(s.t.Context(), storageKey)
}

// Inspect shows what a retry gets, and nothing of what the response says.
func TestInspect(t *testing.T) {
	flushed := func(w http.ResponseWriter, r *http.Request) {
		middleware.FromContext(r.Context()).Unknown()
		_ = http.NewResponseController(w).Flush()
	}
	created := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "paid")
	}
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, test := range map[string]struct {
			handler http.HandlerFunc
			opts    []middleware.Option
			state   lock.State
			want    *middleware.StoredRecord // without Completed and Size
		}{
			"a response": {created, []middleware.Option{traced(someTrace)}, lock.Settled,
				&middleware.StoredRecord{Status: 201, BodySize: 4, Traceparent: someTrace}},
			"encrypted": {created, []middleware.Option{middleware.WithEncryption(master(1)), middleware.WithCompression(0)}, lock.Settled,
				&middleware.StoredRecord{Status: 201, BodySize: 4}},
			"too long": {created, []middleware.Option{middleware.WithMaxResponse(3)}, lock.Settled,
				&middleware.StoredRecord{Status: 201, Tombstone: true}},
			"unknown": {flushed, nil, lock.Settled, &middleware.StoredRecord{Tombstone: true, Unknown: true}},
			"held":    {unknown, []middleware.Option{middleware.WithAtMostOnce()}, lock.Held, nil},
			"free":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, nil, lock.Free, nil},
		} {
			b.FlushAll(t)
			s := serve(t, b, test.handler, test.opts...)
			begun := time.Now().Truncate(time.Millisecond)
			_, _ = s.try(s.request(noRetry))
			s.event()
			got, err := s.inspectBy(test.opts...)
			if err != nil || got.Redis.State != test.state || got.Journal.State != journal.Absent || (got.Stored == nil) != (test.want == nil) {
				t.Fatalf("%s: %+v, %v; want %v", name, got, err, test.state)
			}
			if test.want == nil {
				continue
			}
			if got.Stored.Size == 0 || got.Stored.Completed.Before(begun) || got.Stored.Completed.After(time.Now()) {
				t.Errorf("%s: %d bytes, completed at %v", name, got.Stored.Size, got.Stored.Completed)
			}
			got.Stored.Size, got.Stored.Completed = 0, time.Time{}
			if *got.Stored != *test.want {
				t.Errorf("%s: %+v, want %+v", name, *got.Stored, *test.want)
			}
		}
	})
}

func TestInspectRefuses(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.Mini(t), payOnce(), middleware.WithEncryption(master(1)))
	s.want(s.send(), http.StatusCreated, middleware.Executed)
	if got, err := s.inspectBy(middleware.WithEncryption(master(2))); !errors.Is(err, middleware.ErrUnreadable) || got.Stored != nil ||
		got.Redis.State != lock.Settled {
		t.Errorf("%+v, %v; want %v", got, err, middleware.ErrUnreadable)
	}
	once := middleware.New(s.locker, keyfunc.Anonymous())
	if _, err := once.Inspect(t.Context(), "k1"); !errors.Is(err, lock.ErrNotStorageKey) {
		t.Errorf("%v, want %v", err, lock.ErrNotStorageKey)
	}
	if _, err := s.locker.Claim(t.Context(), "classified", []byte("classified"), 0); err != nil {
		t.Fatal(err)
	}
	if got, err := once.Inspect(t.Context(), s.locker.StorageKey("classified")); !errors.Is(err, middleware.ErrUnreadable) || got.Run != "" ||
		got.Redis.State != lock.Held || got.Journal.Note != nil {
		t.Errorf("%+v, %v; want %v", got, err, middleware.ErrUnreadable)
	}
}

// Record and Resolve take a function's result as once.Guard has it, and nothing else than 1 MiB of it.
func TestAFunctionsResult(t *testing.T) {
	t.Parallel()
	m := middleware.New(lock.None("test"), keyfunc.Anonymous(), middleware.WithJournal(newJournal(true)))
	key := lock.None("test").StorageKey("k")
	for name, test := range map[string]struct {
		said middleware.Resolution
		err  error
	}{
		"a value": {middleware.Returned([]byte("1")), nil}, "an error": {middleware.Failed("declined"), nil},
		"a long value":   {middleware.Returned(make([]byte, 1<<20+1)), middleware.ErrResolution},
		"the zero value": {middleware.Resolution{}, middleware.ErrResolution},
	} {
		if _, err := m.Record(key, test.said); !errors.Is(err, test.err) {
			t.Errorf("%s: %v, want %v", name, err, test.err)
		}
	}
}
