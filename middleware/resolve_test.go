package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// strand sends ann's payment with a key, whose run ends without an outcome, and returns what its key holds.
func (s *site) strand(b redistest.Backend, k string) lock.Info {
	s.t.Helper()
	if _, err := s.try(s.request(noRetry, key(k))); err != nil {
		s.t.Fatal(err)
	}
	if e := s.event(); e.Outcome != middleware.Unknown {
		s.t.Fatalf("%+v, want unknown", e)
	}
	b.Elapse(s.t, leaseTTL)
	info := s.inspect(k)
	if info.State != lock.Abandoned {
		s.t.Fatalf("%+v, want abandoned", info)
	}
	return info
}

// inspect looks at ann's payment with a key.
func (s *site) inspect(k string) lock.Info {
	s.t.Helper()
	storageKey := s.locker.StorageKey(keyfunc.StandardKey("ann", http.MethodPost, "/payments", k))
	info, err := s.locker.Inspect(s.t.Context(), storageKey)
	if err != nil {
		s.t.Fatal(err)
	}
	return info
}

// unknown is a handler that does not know whether it has had its effect.
func unknown(_ http.ResponseWriter, r *http.Request) { middleware.FromContext(r.Context()).Unknown() }

// A resolution is replayed, and stored, as the response of a run is.
func TestResolvedLikeARun(t *testing.T) {
	big := bytes.Repeat([]byte("paid "), 1000)
	responses := map[string]struct {
		status int
		header http.Header
		body   []byte
	}{
		"json":         {http.StatusCreated, http.Header{"Content-Type": {"application/json"}, "Location": {"/payments/7"}}, []byte(`{"id":7}`)},
		"no type":      {http.StatusOK, nil, []byte("<html>paid")},
		"no content":   {http.StatusNoContent, http.Header{"X-Payment": {"7", "8"}}, nil},
		"server error": {http.StatusInternalServerError, nil, []byte("failed")},
		"big":          {http.StatusOK, http.Header{"content-type": {"text/plain"}, "Content-Length": {fmt.Sprint(len(big))}}, big},
		"hop by hop":   {http.StatusOK, http.Header{"Connection": {"X-Hop"}, "X-Hop": {"1"}, "Date": {"today"}}, []byte("x")},
	}
	optionSets := map[string][]middleware.Option{
		"plain":      nil,
		"encrypted":  {middleware.WithEncryption(master(1))},
		"compressed": {middleware.WithCompression(0), middleware.WithRetention(time.Hour)},
	}
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, options := range optionSets {
			t.Run(name, func(t *testing.T) {
				for what, resp := range responses {
					b.FlushAll(t)
					s := serve(t, b, func(w http.ResponseWriter, r *http.Request) {
						if r.Header.Get("Idempotency-Key") == "stranded" {
							unknown(w, r)
							return
						}
						for name, values := range resp.header {
							w.Header()[http.CanonicalHeaderKey(name)] = values
						}
						w.WriteHeader(resp.status)
						_, _ = w.Write(resp.body)
					}, append(options, middleware.WithAtMostOnce())...)
					s.send(key("own"))
					s.event()
					own := s.send(key("own"))
					s.want(own, resp.status, middleware.Replayed)

					info := s.strand(b, "stranded")
					said := middleware.Responded(resp.status, resp.header, resp.body)
					if err := middleware.Resolve(t.Context(), s.locker, info.Key, info.Token, said, options...); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					for range 2 {
						resolved := s.send(key("stranded"))
						s.want(resolved, resp.status, middleware.Replayed)
						own.header.Del("Date")
						resolved.header.Del("Date")
						if !reflect.DeepEqual(resolved, own) {
							t.Errorf("%s:\ngot  %+v\nwant %+v", what, resolved, own)
						}
					}
					s.want(s.send(key("stranded"), body("text/plain", "other")), http.StatusUnprocessableEntity, middleware.Reused)
					ours, theirs := s.inspect("own"), s.inspect("stranded")
					if theirs.State != lock.Settled || theirs.Size != ours.Size || (theirs.TTL-ours.TTL).Abs() > time.Minute {
						t.Errorf("%s: stored as %+v, a run's own as %+v", what, theirs, ours)
					}
					s.wantRuns(2)
				}
			})
		}
	})
}

func TestWrongResolutions(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, unknown, middleware.WithAtMostOnce())
		info := s.strand(b, "k1")
		for want, said := range map[string]middleware.Resolution{
			"zero value":              {},
			"100 is no final status":  middleware.Responded(100, nil, nil),
			"101 is no final status":  middleware.Responded(101, nil, nil),
			"0 is no final status":    middleware.Responded(0, nil, nil),
			"1000 is no final status": middleware.Responded(1000, nil, nil),
			"WithMaxResponse":         middleware.Responded(200, nil, make([]byte, 101)),
			"shorter than its":        middleware.Responded(200, http.Header{"Content-Length": {"3"}}, []byte("xx")),
			"more than the declared":  middleware.Responded(200, http.Header{"Content-Length": {"1"}}, []byte("xx")),
			"allow body":              middleware.Responded(204, nil, []byte("xx")),
			"WithCookies":             middleware.Responded(200, http.Header{"set-cookie": {"a=b"}}, nil),
			"no valid name":           middleware.Responded(200, http.Header{"a b": {"c"}}, nil),
			"control character":       middleware.Responded(200, http.Header{"A": {"b\r\nc: d"}}, nil),
			"too many":                middleware.Responded(200, http.Header{"A": make([]string, 10_001)}, nil),
		} {
			err := middleware.Resolve(t.Context(), s.locker, info.Key, info.Token, said, middleware.WithMaxResponse(100))
			if !errors.Is(err, middleware.ErrResolution) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want one that has %q", err, want)
			}
		}
		for _, lengths := range [][]string{{"+3"}, {"-3"}, {"3 "}, {""}, {"0x3"}, {"1_0"}, {"3, 3"}, {"3", "3"}, {"9223372036854775808"}, {}} {
			said := middleware.Responded(200, http.Header{"content-length": lengths}, []byte("xxx"))
			err := middleware.Resolve(t.Context(), s.locker, info.Key, info.Token, said)
			if !errors.Is(err, middleware.ErrResolution) || !strings.Contains(err.Error(), "decimal digits") {
				t.Errorf("Content-Length %q: %v, want ErrResolution", lengths, err)
			}
		}
		cookie := middleware.Responded(200, http.Header{"Set-Cookie": {"a=b"}}, nil)
		other := "01234567-89ab-4def-8123-456789abcdef"
		for want, err := range map[error]error{
			lock.ErrChanged:       middleware.Resolve(t.Context(), s.locker, info.Key, other, cookie, middleware.WithCookies()),
			lock.ErrNotStorageKey: middleware.Resolve(t.Context(), s.locker, "k1", info.Token, middleware.NothingHappened()),
			context.Canceled:      middleware.Resolve(cancelled(), s.locker, info.Key, info.Token, middleware.NothingHappened()),
		} {
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		if now := s.inspect("k1"); now.State != lock.Abandoned || now.Token != info.Token {
			t.Errorf("%+v, want the claim as it was", now)
		}
		for _, want := range []error{nil, lock.ErrChanged} {
			err := middleware.Resolve(t.Context(), s.locker, info.Key, info.Token, middleware.NothingHappened())
			if now := s.inspect("k1"); !errors.Is(err, want) || now.State != lock.Free {
				t.Errorf("%v and %+v, want %v and a free key", err, now, want)
			}
		}
	})
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
