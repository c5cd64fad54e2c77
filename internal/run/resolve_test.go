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
		"abandoned, of another door":  {otherDoor, nil, false, nil, run.ErrFunction, nil, 0},
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
		for what, left := range map[string]*run.Left{"a response": {Head: []byte("h"), Body: []byte("b")}, "nothing": nil} {
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
				if left == nil {
					wantErr, ends = test.not, 0
				}
				err = g.Resolve(t.Context(), key, token, left)
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
				case wantErr == nil && left == nil && after != "":
					t.Errorf("the key holds %q", after)
				case wantErr == nil && left != nil:
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

// fault: an operator resolves what has its outcome, or a row that another operator has removed. Expected: the error says
// that, not that the key holds something else than the token names, nor that it has the "outcome absent of another run".
func TestResolveSaysWhyNot(t *testing.T) {
	t.Parallel()
	left := &run.Left{Head: []byte("h"), Body: []byte("b")}
	mini := redistest.Mini(t)
	g, locker := newGuardOn(t, mini.Client(t))
	w := begun{t, mini, mini.Client(t), nil, locker}
	if err := w.claim(0).Settle(t.Context(), []byte("x"), time.Hour); err != nil {
		t.Fatal(err)
	}
	key := locker.StorageKey("k")
	info, err := locker.Inspect(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []*run.Left{left, nil} {
		if err := g.Resolve(t.Context(), key, info.Token, left); !errors.Is(err, run.ErrSettled) || errors.Is(err, lock.ErrChanged) {
			t.Errorf("settled: %v, want ErrSettled", err)
		}
	}
	const token = "5e8f2b1c-0000-4000-8000-000000000000"
	for name, test := range map[string]struct {
		row, ended journal.Entry
		left       *run.Left
		want       error
	}{
		"it ended before":                   {journal.Entry{State: journal.Done, Token: token, Record: []byte("x")}, journal.Entry{}, left, run.ErrSettled},
		"it ended before, nothing happened": {journal.Entry{State: journal.Done, Token: token}, journal.Entry{}, nil, run.ErrSettled},
		"another has ended":                 {journal.Entry{State: journal.Done, Token: "other"}, journal.Entry{}, left, lock.ErrChanged},
		"another has a response":            {journal.Entry{State: journal.Done, Token: "other", Record: []byte("x")}, journal.Entry{}, left, lock.ErrChanged},
		"it ends meanwhile": {journal.Entry{State: journal.Unfinished, Token: token},
			journal.Entry{State: journal.Done, Token: token, Record: []byte("x")}, left, run.ErrSettled},
		"it is removed meanwhile":  {journal.Entry{State: journal.Unfinished, Token: token}, journal.Entry{}, left, lock.ErrChanged},
		"another begins meanwhile": {journal.Entry{State: journal.Unfinished, Token: token}, journal.Entry{State: journal.Running, Token: "other"}, left, lock.ErrChanged},
	} {
		mini := redistest.Mini(t)
		r := &row{ended: test.ended}
		g, locker := newGuardOn(t, mini.Client(t), func(p *run.Policy) { p.Journal = r })
		r.standing.entry = test.row
		r.standing.entry.Note = noteOf(locker, 1)
		err := g.Resolve(t.Context(), locker.StorageKey("k"), token, test.left)
		if !errors.Is(err, test.want) || strings.Contains(err.Error(), "absent") {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// row is a row whose End finds another entry.
type row struct {
	standing
	ended journal.Entry
}

func (r *row) End(context.Context, journal.Run, []byte, time.Duration) (journal.Entry, error) {
	return r.ended, nil
}

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
				changed := false
				hook.set(afterScripts(2, func() error { // inspect.lua and claim.lua, before override.lua
					test.change(w)
					changed = true
					return nil
				}), nil)
				err = g.Resolve(t.Context(), locker.StorageKey("k"), claim.Lease.Token(), new(run.Left))
				if (err == nil) != (test.err == nil) || test.err != nil && !errors.Is(err, test.err) || !changed {
					t.Errorf("%v, changed: %t, want %v", err, changed, test.err)
				}
			})
		}
	}
}

// afterScripts returns a function that calls do once, when a script is sent and n others have run: each as EVALSHA, repeated on
// a slow machine, and then as EVAL.
func afterScripts(n int, do func() error) (before func(name string) error) {
	called := false
	return func(name string) error {
		if name == "eval" {
			n--
		}
		if called || n > 0 || name != "evalsha" {
			return nil
		}
		called = true
		return do()
	}
}

// Without a record Inspect tells by the note whose run it is, and whether the run has a journal. The note of a row counts,
// not that of the claim of a retry. A lock has no note, and is nobody's run.
func TestInspectANote(t *testing.T) {
	t.Parallel()
	key := lock.None("test").StorageKey("k")
	noteBy := func(door record.Door, isJournaled bool) []byte {
		c := record.Codec{Door: door}
		return c.EncodeNote(nil, key, record.Note{Fingerprint: request(1).Fingerprints[0], Journaled: isJournaled})
	}
	for name, test := range map[string]struct {
		note  []byte
		row   *standing
		isRun bool
		door  record.Door
		err   error
	}{
		"a request's":       {noteBy(record.HTTP, false), nil, true, record.HTTP, nil},
		"a function's":      {noteBy(record.Value, true), nil, true, record.Value, nil},
		"a lock's":          {nil, nil, false, 0, nil},
		"another program's": {[]byte("classified"), nil, true, 0, record.ErrUnreadable},
		"a retry's":         {nil, &standing{entry: journal.Entry{State: journal.Unfinished, Note: noteBy(record.Value, true)}}, true, record.Value, nil},
	} {
		mini := redistest.Mini(t)
		g, locker := newGuardOn(t, mini.Client(t), func(p *run.Policy) {
			if test.row != nil {
				p.Journal = test.row
			}
		})
		if _, err := locker.Claim(t.Context(), "k", test.note, time.Hour); err != nil {
			t.Fatal(err)
		}
		redis, row, err := g.Inspect(t.Context(), key)
		if err != nil || redis.State != lock.Held || (len(row.Note) > 0) != test.isRun {
			t.Errorf("%s: %+v, %+v, %v", name, redis, row, err)
		}
		if n, door, err := g.Codec.DecodeAnyNote(key, row.Note); test.isRun &&
			(!errors.Is(err, test.err) || err == nil && (door != test.door || n.Journaled != (test.door == record.Value))) {
			t.Errorf("%s: %+v of %v, %v", name, n, door, err)
		}
	}
}

// Inspect shows the record that a duplicate gets, and changes nothing.
func TestInspect(t *testing.T) {
	t.Parallel()
	codec, completed := new(record.Codec), time.Now()
	encoded := func(body string) []byte {
		rec := &record.Record{Fingerprint: request(1).Fingerprints[0], Completed: completed, Body: []byte(body)}
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
		return journal.Entry{State: journal.Done, Token: "another", Record: value, Note: noteOf(lock.None("test"), 1)}
	}
	for name, test := range map[string]struct {
		key     func(begun)
		journal *standing
		record  []byte // nil: none
		err     error
	}{
		"nothing":                        {nil, nil, nil, nil},
		"a claim":                        {func(w begun) { w.claim(0) }, nil, nil, nil},
		"a record":                       {redisHas(encoded("redis")), nil, encoded("redis"), nil},
		"a record, and another":          {redisHas(encoded("redis")), &standing{entry: row(encoded("journal"))}, encoded("redis"), nil},
		"a record in the journal":        {nil, &standing{entry: row(encoded("journal"))}, encoded("journal"), nil},
		"a claim, a record":              {func(w begun) { w.claim(0) }, &standing{entry: row(encoded("journal"))}, encoded("journal"), nil},
		"no record in the journal":       {nil, &standing{entry: row(nil)}, nil, nil},
		"a broken record":                {redisHas([]byte("x")), nil, []byte("x"), nil},
		"a broken record, and another":   {redisHas([]byte("x")), &standing{entry: row(encoded("journal"))}, []byte("x"), nil},
		"another program's":              {func(w begun) { w.client.Set(w.Context(), w.locker.StorageKey("k"), "x", 0) }, nil, nil, lock.ErrForeign},
		"a journal that does not answer": {nil, &standing{lookErr: errDown}, nil, errDown},
		"a value that Redis keeps to itself": {func(w begun) {
			redisHas(encoded("redis"))(w)
			w.hook.set(afterScripts(1, func() error { return errRefused }), nil) // inspect.lua
		}, nil, nil, errRefused},
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
			redis, row, err := g.Inspect(t.Context(), locker.StorageKey("k"))
			if !errors.Is(err, test.err) || (err == nil) != (redis.Key != "") {
				t.Errorf("%+v, %v, want %v", redis, err, test.err)
			}
			if string(row.Record) != string(test.record) || err == nil && test.journal != nil && row.State != journal.Done {
				t.Errorf("%+v, want the record %q", row, test.record)
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
	err = g.Resolve(t.Context(), locker.StorageKey("k"), claim.Lease.Token(), new(run.Left))
	if !errors.Is(err, lock.ErrChanged) || strings.Contains(err.Error(), "another run") || !strings.Contains(err.Error(), "removed") {
		t.Errorf("%v, want ErrChanged, and that the row was removed", err)
	}
}
