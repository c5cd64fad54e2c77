package middleware_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// Redis refuses writes for longer than a lease. The responses of one user are more than a process keeps for it, and the
// small response of another user has waited for the longest time. No retry runs again, in the default mode: it gets its
// response, or 409 if that was too large to be kept. The small response is kept.
//
// fault: Redis refuses writes for longer than a lease, pending responses exceed 64 MiB
func TestLargeResponsesDoNotDisplaceASmallOne(t *testing.T) {
	const large, size = 70, 1<<20 - 1<<10
	server := redistest.Start(t)
	locker := newLocker(t, server.Client(t), lock.WithTTL(2*time.Second), lock.WithoutRenewal())
	gates := map[string]*gate{"ann": newGate(), "eve": newGate()}
	s := serveOn(t, locker, func(w http.ResponseWriter, r *http.Request) {
		name, _, _ := r.BasicAuth()
		gates[name].pass()
		w.WriteHeader(http.StatusCreated)
		if name == "eve" {
			_, _ = w.Write(make([]byte, size))
		}
	})
	small := s.inBackground(gates["ann"])
	var others []<-chan answer
	for i := range large {
		others = append(others, s.inBackground(gates["eve"], user("eve"), key(strconv.Itoa(i))))
	}

	config := server.Client(t)
	setMemory := func(limit string) {
		if err := config.ConfigSet(t.Context(), "maxmemory", limit).Err(); err != nil {
			t.Fatal(err)
		}
	}
	setMemory("1")
	close(gates["ann"].open)
	s.want(<-small, http.StatusCreated, middleware.NotStored)
	close(gates["eve"].open)
	for _, answered := range others {
		s.want(<-answered, http.StatusCreated, middleware.NotStored)
	}
	s.awaitFree(server) // the claims have expired
	setMemory("0")
	for deadline := time.Now().Add(20 * time.Second); locker.Stats().Pending > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not stored: %+v", locker.Stats())
		}
	}

	other := serveOn(t, newLocker(t, server.Client(t)), payOnce())
	s.want(s.send(), http.StatusCreated, middleware.Replayed)
	replayed := 0
	for i := range large {
		a := other.send(user("eve"), key(strconv.Itoa(i)))
		switch e := other.event(); {
		case e.Outcome == middleware.Replayed && a.status == http.StatusCreated && len(a.body) == size:
			replayed++
		case e.Outcome != middleware.NotReplayable || a.problem() != "response-not-stored":
			t.Errorf("large response %d: %d %.100s, %s", i, a.status, strings.TrimSpace(a.body), e.Outcome)
		}
	}
	if replayed < 60 || replayed == large {
		t.Errorf("%d of %d large responses were kept", replayed, large)
	}
	s.wantRuns(large + 1)
	other.wantRuns(0)
}
