package middleware_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// testdata/stored has what the first release stores for ann's payment under the key "k", in hex: the middleware's part of
// a key's value. It is never written again. A later release adds files, and reads all of them.

// stored is a response of which testdata/stored has the record.
type stored struct {
	file    string
	opts    []middleware.Option
	handler http.HandlerFunc
	again   answer // to a repetition
	outcome middleware.Outcome

	// rewritten tells that today's code writes the same bytes but for the time. It is false where a nonce, the order of a
	// header's fields, or the version of compress/flate decides.
	rewritten bool
}

func storedResponses() []stored {
	created := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":1}`)
	}
	long := strings.Repeat("a payment, ", 100)
	exported := func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		_, _ = io.WriteString(w, long)
	}
	typed := http.Header{"Content-Type": {"application/json"}}
	return []stored{
		{
			file: "record-plain", handler: created, rewritten: true,
			again: answer{status: 201, header: typed, body: `{"id":1}`}, outcome: middleware.Replayed,
		},
		{
			file: "record-compressed", handler: exported, opts: []middleware.Option{middleware.WithCompression(0)},
			again: answer{status: 200, body: long}, outcome: middleware.Replayed,
		},
		{
			file: "record-encrypted", handler: created, opts: []middleware.Option{middleware.WithEncryption(master(1))},
			again: answer{status: 201, header: typed, body: `{"id":1}`}, outcome: middleware.Replayed,
		},
		{
			file: "record-tombstone", handler: exported, opts: []middleware.Option{middleware.WithMaxResponse(100)}, rewritten: true,
			again: answer{status: 409}, outcome: middleware.NotReplayable,
		},
		{
			file: "record-tombstone-unknown", handler: func(w http.ResponseWriter, r *http.Request) {
				middleware.FromContext(r.Context()).Unknown()
				w.(http.Flusher).Flush()
			},
			rewritten: true, again: answer{status: 409}, outcome: middleware.OutcomeUnknown,
		},
		{
			file: "record-trailers", handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Trailer", "X-Checksum")
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"id":1}`)
				w.Header().Set("X-Checksum", "abc")
				w.Header().Set(http.TrailerPrefix+"X-Duration", "5ms")
			},
			again: answer{
				status: 200, header: typed, body: `{"id":1}`,
				trailer: http.Header{"X-Checksum": {"abc"}, "X-Duration": {"5ms"}},
			},
			outcome: middleware.Replayed,
		},
	}
}

// load returns what is in a file of testdata/stored.
func load(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "stored", file+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// serveStored starts a site that never runs its handler, whose one key is claimed with the note given.
func serveStored(t *testing.T, note []byte, opts []middleware.Option) (*site, *lock.Lease) {
	t.Helper()
	locker := newLocker(t, redistest.Mini(t).Client(t))
	claim, err := locker.Claim(t.Context(), "k", note, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := serveKeyed(t, locker, fixedKey, func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }, opts...)
	return s, claim.Lease
}

func TestStoredRecordIsRead(t *testing.T) {
	t.Parallel()
	storageKey := newLocker(t, redistest.Mini(t).Client(t)).StorageKey("k")
	const flagsAt, contentAt = 5, 6
	for _, test := range storedResponses() {
		golden := load(t, test.file)
		forms := map[string][]byte{"as it is": golden}
		if isEncrypted := golden[flagsAt]&record.FlagEncrypted != 0; isEncrypted {
			plain := load(t, "record-plain")
			forms["extended"] = forge(storageKey, true, plain[flagsAt], extended(plain[contentAt:]))
		} else {
			forms["extended"] = forge(storageKey, false, golden[flagsAt], extended(golden[contentAt:]))
		}
		for form, value := range forms {
			t.Run(test.file+", "+form, func(t *testing.T) {
				t.Parallel()
				s, lease := serveStored(t, nil, test.opts)
				if err := lease.Settle(t.Context(), value, time.Hour); err != nil {
					t.Fatal(err)
				}
				a := s.send()
				s.want(a, test.again.status, test.outcome)
				if test.outcome == middleware.Replayed && a.body != test.again.body {
					t.Errorf("body %q, want %q", a.body, test.again.body)
				}
				for name := range test.again.header {
					if got, want := a.header[name], test.again.header[name]; !slices.Equal(got, want) {
						t.Errorf("%s: %q, want %q", name, got, want)
					}
				}
				if !maps.EqualFunc(a.trailer, test.again.trailer, slices.Equal) {
					t.Errorf("trailers %q, want %q", a.trailer, test.again.trailer)
				}
				s.want(s.send(body("application/json", "{}")), http.StatusUnprocessableEntity, middleware.Reused)
			})
		}
	}
}

func TestStoredNoteIsRead(t *testing.T) {
	t.Parallel()
	storageKey := newLocker(t, redistest.Mini(t).Client(t)).StorageKey("k")
	content := load(t, "note-plain")[1:]
	extension := append(bytes.Clone(content[:fingerprintLen]), "\x19what a later release adds"...)
	for file, opts := range storedNotes() {
		for form, note := range map[string][]byte{
			"as it is": load(t, file), "extended": forgeNote(storageKey, opts != nil, extension),
		} {
			t.Run(file+", "+form, func(t *testing.T) {
				t.Parallel()
				s, _ := serveStored(t, note, opts)
				s.want(s.send(), http.StatusConflict, middleware.InFlight)
				s.want(s.send(body("application/json", "{}")), http.StatusUnprocessableEntity, middleware.Reused)
			})
		}
	}
}

// An earlier release reads what is written today: it has the same form.
func TestStoredIsWrittenAgain(t *testing.T) {
	t.Parallel()
	const completedAt = 6 + fingerprintLen
	for _, test := range storedResponses() {
		if !test.rewritten {
			continue
		}
		b := redistest.Mini(t)
		g := newGate()
		s := serveKeyed(t, newLocker(t, b.Client(t)), fixedKey, behind(t, g, test.handler), test.opts...)
		done := s.inBackground(g)
		key := b.Keys(t)[0]
		if got, want := rawOf(t, b, key)[noteAt:], load(t, "note-plain"); !bytes.Equal(got, want) {
			t.Errorf("note: got  %x\nwant %x", got, want)
		}
		before := time.Now().UnixMilli()
		close(g.open)
		<-done
		got, want := rawOf(t, b, key)[recordAt:], load(t, test.file)
		if at := int64(binary.BigEndian.Uint64(got[completedAt:])); at < before || at > time.Now().UnixMilli() {
			t.Errorf("%s: completed at %d, want from %d on", test.file, at, before)
		}
		copy(got[completedAt:], want[completedAt:][:8])
		putChecksum(key, got)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: got  %x\nwant %x", test.file, got, want)
		}
	}
}

// noteAt is where the middleware's part of a claim begins.
const noteAt = 4 + 16 + 1 + 16 + 8 + 8

func storedNotes() map[string][]middleware.Option {
	return map[string][]middleware.Option{
		"note-plain":     nil,
		"note-encrypted": {middleware.WithEncryption(master(1))},
	}
}
