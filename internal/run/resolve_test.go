package run_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// told is a journal that has no row, and answers an End as a test says.
type told struct {
	fakeJournal
	answer journal.Entry // of another run; the zero Entry: the one that End was told
	err    error
	runs   []journal.Run // what End was told
}

func (*told) Look(context.Context, string) (journal.Entry, error) { return journal.Entry{}, nil }

func (j *told) End(ctx context.Context, r journal.Run, encoded []byte, keep time.Duration) (journal.Entry, error) {
	j.runs = append(j.runs, r)
	entry, _ := j.fakeJournal.End(ctx, r, encoded, keep)
	if j.answer.State != journal.Absent {
		entry = j.answer
	}
	return entry, j.err
}

// What an operator may say of a run that has only its claim in Redis.
func TestResolveByClaim(t *testing.T) {
	t.Parallel()
	theirs := journal.Entry{State: journal.Done, Token: "another", Record: []byte("theirs")}
	journaledNote := func(w begun) []byte { return noteOf(w.locker, 1) }
	bareNote := func(w begun) []byte {
		return new(record.Codec).EncodeNote(nil, w.locker.StorageKey("k"), record.Note{Fingerprint: request(1).Fingerprints[0]})
	}
	brokenNote := func(w begun) []byte { return []byte("x") }
	otherDoor := func(w begun) []byte {
		other := record.Codec{Door: 1}
		return other.EncodeNote(nil, w.locker.StorageKey("k"), record.Note{Fingerprint: request(1).Fingerprints[0]})
	}
	free := func(w begun, _ *lock.Lease) { w.client.Del(w.Context(), w.locker.StorageKey("k")) }
	for name, test := range map[string]struct {
		note          func(begun) []byte
		change        func(begun, *lock.Lease) // before
		other         bool                     // another token is named
		journal       *told
		response, not error // of a payload, and of none
		ends          int   // of the journal, with a payload
	}{
		"abandoned":                   {bareNote, nil, false, nil, nil, nil, 0},
		"abandoned, journal":          {journaledNote, nil, false, &told{}, nil, nil, 1},
		"abandoned, journal fails":    {journaledNote, nil, false, &told{err: errDown}, errDown, nil, 1},
		"abandoned, journal's":        {journaledNote, nil, false, &told{answer: theirs}, lock.ErrChanged, nil, 1},
		"abandoned, had a journal":    {journaledNote, nil, false, nil, run.ErrJournaled, run.ErrJournaled, 0},
		"abandoned, unreadable":       {brokenNote, nil, false, nil, errAny, errAny, 0},
		"abandoned, unreadable, both": {brokenNote, nil, false, &told{}, errAny, errAny, 0},
		"abandoned, of another door":  {otherDoor, nil, false, nil, errAny, nil, 0},
		"live":                        {bareNote, func(begun, *lock.Lease) {}, false, nil, lock.ErrLive, lock.ErrLive, 0},
		"free":                        {bareNote, free, false, nil, lock.ErrChanged, lock.ErrChanged, 0},
		"another token":               {bareNote, nil, true, nil, lock.ErrChanged, lock.ErrChanged, 0},
		"settled": {bareNote, func(w begun, l *lock.Lease) {
			_ = l.Settle(w.Context(), []byte("x"), time.Hour)
		}, false, nil, lock.ErrChanged, lock.ErrChanged, 0},
		"foreign": {bareNote, func(w begun, _ *lock.Lease) {
			w.client.Set(w.Context(), w.locker.StorageKey("k"), "x", 0)
		}, false, nil, lock.ErrForeign, lock.ErrForeign, 0},
	} {
		for what, payload := range map[string]*[2][]byte{"a response": {[]byte("h"), []byte("b")}, "nothing": nil} {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				mini := redistest.Mini(t)
				var j *told
				g, locker := newGuardOn(t, mini.Client(t), func(p *run.Policy) {
					if test.journal != nil {
						j = &told{answer: test.journal.answer, err: test.journal.err}
						p.Journal = j
					}
				})
				w := begun{t, mini, mini.Client(t), nil, locker}
				claim, err := locker.Claim(t.Context(), "k", test.note(w), time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				claim.Lease.Abandon()
				if test.change == nil {
					mini.Elapse(t, time.Minute)
				} else {
					test.change(w, claim.Lease)
				}
				token, key := claim.Lease.Token(), locker.StorageKey("k")
				if test.other {
					token = "5e8f2b1c-0000-4000-8000-000000000000"
				}
				before, _ := mini.Raw(t, key)
				wantErr, ends := test.response, test.ends
				if payload == nil {
					wantErr, ends = test.not, 0
				}
				err = g.Resolve(t.Context(), key, token, payload)
				if (err == nil) != (wantErr == nil) || wantErr != nil && wantErr != errAny && !errors.Is(err, wantErr) {
					t.Errorf("%v, want %v", err, wantErr)
				}
				if j != nil && (len(j.runs) != ends || ends > 0 && (j.runs[0].Key != key || j.runs[0].Token != token || len(j.runs[0].Note) == 0)) {
					t.Errorf("the journal was told %+v, want %d", j.runs, ends)
				}
				after, _ := mini.Raw(t, key)
				switch {
				case wantErr != nil && after != before:
					t.Errorf("the key holds %q, and held %q", after, before)
				case wantErr == nil && payload == nil && after != "":
					t.Errorf("the key holds %q", after)
				case wantErr == nil && payload != nil:
					again := g.Begin(t.Context(), request(1))
					want(t, again, run.Stored, run.OutcomeReplayed)
					if string(again.Record.Body) != "hb" {
						t.Errorf("%+v", again.Record)
					}
				}
			})
		}
	}
}

var errAny = errors.New("any error")

// Once the journal has the outcome, it does not matter that the claim has ended or is renewed again. Other errors of
// Redis are returned.
func TestResolveWhileTheClaimChanges(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(begun)
		journal bool
		err     error
	}{
		"gone":                {func(w begun) { w.client.Del(w.Context(), w.locker.StorageKey("k")) }, true, nil},
		"gone, no journal":    {func(w begun) { w.client.Del(w.Context(), w.locker.StorageKey("k")) }, false, lock.ErrChanged},
		"renewed":             {func(w begun) { w.client.PExpire(w.Context(), w.locker.StorageKey("k"), 2*time.Hour) }, true, nil},
		"renewed, no journal": {func(w begun) { w.client.PExpire(w.Context(), w.locker.StorageKey("k"), 2*time.Hour) }, false, lock.ErrLive},
		"foreign":             {func(w begun) { w.client.Set(w.Context(), w.locker.StorageKey("k"), "x", 0) }, true, lock.ErrForeign},
	} {
		for row, isRow := range map[string]bool{"": false, ", with a row": true} {
			if isRow && !test.journal {
				continue
			}
			t.Run(name+row, func(t *testing.T) {
				t.Parallel()
				mini := redistest.Mini(t)
				client, hook := mini.Client(t), &commands{}
				client.AddHook(hook)
				s := &standing{}
				g, locker := newGuardOn(t, client, func(p *run.Policy) {
					switch {
					case isRow:
						p.Journal = s
					case test.journal:
						p.Journal = &told{}
					}
				})
				w := begun{t, mini, mini.Client(t), hook, locker}
				note := record.Note{Fingerprint: request(1).Fingerprints[0], Journaled: test.journal}
				claim, err := locker.Claim(t.Context(), "k", new(record.Codec).EncodeNote(nil, locker.StorageKey("k"), note), time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				claim.Lease.Abandon()
				mini.Elapse(t, time.Minute)
				s.entry = journal.Entry{State: journal.Unfinished, Token: claim.Lease.Token(), Note: noteOf(locker, 1)}
				sent := 0
				hook.set(func(name string) error { // inspect.lua and claim.lua come before override.lua, each as EVALSHA and EVAL
					if sent++; sent == 5 {
						test.change(w)
					}
					return nil
				}, nil)
				err = g.Resolve(t.Context(), locker.StorageKey("k"), claim.Lease.Token(), new([2][]byte))
				if (err == nil) != (test.err == nil) || test.err != nil && !errors.Is(err, test.err) || sent < 5 {
					t.Errorf("%v after %d commands, want %v", err, sent, test.err)
				}
			})
		}
	}
}

// Inspect shows the record that a duplicate gets, and changes nothing.
func TestInspect(t *testing.T) {
	t.Parallel()
	codec := new(record.Codec)
	encoded := func(body string) []byte {
		rec := &record.Record{Fingerprint: request(1).Fingerprints[0], Completed: time.Now(), Body: []byte(body)}
		return codec.Append(nil, lock.None("test").StorageKey("k"), rec)
	}
	redisHas := func(value []byte) func(begun) {
		return func(w begun) {
			if err := w.claim(0).Settle(w.Context(), value, time.Hour); err != nil {
				w.Error(err)
			}
		}
	}
	row := func(value []byte) journal.Entry {
		return journal.Entry{State: journal.Done, Token: "another", Record: value, Note: []byte("note")}
	}
	for name, test := range map[string]struct {
		key     func(begun)
		journal *standing
		body    string // of the record; empty: none
		err     error
	}{
		"nothing":                        {nil, nil, "", nil},
		"a claim":                        {func(w begun) { w.claim(0) }, nil, "", nil},
		"a record":                       {redisHas(encoded("redis")), nil, "redis", nil},
		"a record, and another":          {redisHas(encoded("redis")), &standing{entry: row(encoded("journal"))}, "redis", nil},
		"a record in the journal":        {nil, &standing{entry: row(encoded("journal"))}, "journal", nil},
		"a claim, a record":              {func(w begun) { w.claim(0) }, &standing{entry: row(encoded("journal"))}, "journal", nil},
		"no record in the journal":       {nil, &standing{entry: row(nil)}, "", nil},
		"a broken record":                {redisHas([]byte("x")), nil, "", errAny},
		"a broken record, and another":   {redisHas([]byte("x")), &standing{entry: row(encoded("journal"))}, "", errAny},
		"another program's":              {func(w begun) { w.client.Set(w.Context(), w.locker.StorageKey("k"), "x", 0) }, nil, "", lock.ErrForeign},
		"a journal that does not answer": {nil, &standing{lookErr: errDown}, "", errDown},
		"a value that Redis keeps to itself": {func(w begun) {
			redisHas(encoded("redis"))(w)
			sent := 0
			w.hook.set(func(string) error {
				if sent++; sent == 3 { // after inspect.lua, as EVALSHA and EVAL
					return errRefused
				}
				return nil
			}, nil)
		}, nil, "", errRefused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mini := redistest.Mini(t)
			client, hook := mini.Client(t), &commands{}
			client.AddHook(hook)
			g, locker := newGuardOn(t, client, func(p *run.Policy) {
				if test.journal != nil {
					p.Journal = test.journal
				}
			})
			if test.key != nil {
				test.key(begun{t, mini, mini.Client(t), hook, locker})
			}
			i, err := g.Inspect(t.Context(), locker.StorageKey("k"))
			if (err == nil) != (test.err == nil) || test.err != nil && test.err != errAny && !errors.Is(err, test.err) {
				t.Errorf("%v, want %v", err, test.err)
			}
			if (i.Record != nil) != (test.body != "") || i.Record != nil && (string(i.Record.Body) != test.body || i.Size != len(encoded(test.body))) {
				t.Errorf("%+v, size %d; want %q", i.Record, i.Size, test.body)
			}
			if known := test.err == nil || test.err == errAny; known != (i.Info.Key != "") || i.Entry.Note != nil || i.Entry.Record != nil ||
				known && test.journal != nil && i.Entry.State != journal.Done {
				t.Errorf("%+v", i)
			}
		})
	}
}

// forgetful is a journal whose End finds no row, nor leaves one.
type forgetful struct{ told }

func (*forgetful) End(context.Context, journal.Run, []byte, time.Duration) (journal.Entry, error) {
	return journal.Entry{}, nil
}

// fault: the journal has no row when a resolution ends there. Expected: ErrChanged, which speaks of no other run
func TestResolveWithoutARow(t *testing.T) {
	t.Parallel()
	mini := redistest.Mini(t)
	g, locker := newGuardOn(t, mini.Client(t), func(p *run.Policy) { p.Journal = &forgetful{} })
	claim, err := locker.Claim(t.Context(), "k", noteOf(locker, 1), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	claim.Lease.Abandon()
	mini.Elapse(t, time.Minute)
	err = g.Resolve(t.Context(), locker.StorageKey("k"), claim.Lease.Token(), &[2][]byte{[]byte("h"), []byte("b")})
	if !errors.Is(err, lock.ErrChanged) || strings.Contains(err.Error(), "another run") || !strings.Contains(err.Error(), "absent") {
		t.Errorf("%v, want ErrChanged, and that the row is absent", err)
	}
}
