package operate

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/profile"
)

func TestInspect(t *testing.T) {
	s := openMini(t)
	key := s.key("k1")
	s.run("inspect "+key).want(exitFree, "key      "+key, "free: Redis has no such key", "unless a journal")
	s.run("inspect -json "+key).want(exitFree, `{"key":"`+key+`","state":"free","ttl_ms":0}`)
	s.post("k1")
	s.run("inspect "+key).want(exitDone, "held:", "fence", "lease", "hold     24h0m0s after that", "claimed")
	s.elapse(2*time.Minute + time.Second)
	s.run("inspect "+key).want(exitDone, "abandoned: a request ended without an outcome", "run      of an HTTP request", "lease    over", "hold     23h5").
		hides("lock", "owner")
	s.works = true
	s.post("k2")
	s.run("inspect "+s.key("k2")).want(exitDone, "settled: retries get the stored response",
		"stored   status 201, a body of 0 bytes", "token    value-", "ends     in 2", "settled  20")
	s.run("inspect -json "+s.key("k2")).want(exitDone, `"stored":{"completed_at":"20`, `"status":201}`)
	s.run("inspect -keys-file "+writeFile(t, strings.Repeat("ab", keySize))+" "+s.key("k2")).want(exitDone, "stored   status 201") // in plaintext
	hash := key[strings.Index(key, "}")+1:]
	for _, words := range []string{key, "-namespace shop " + hash, "-namespace shop urn:onceguard:key:" + hash} {
		s.run("inspect -json "+words).want(exitDone, `"key":"`+key+`"`, `"state":"abandoned","token":"`, `"claimed_at":"20`, `"hold_left_ms":86`)
	}
}

// What the line "journal" says of a row.
func TestRow(t *testing.T) {
	t.Parallel()
	const ago, left = -time.Minute, time.Minute
	for want, row := range map[string]Row{
		"no row":                        {},
		"running, 1m0s until its limit": {State: journal.Running, Left: left},
		"unfinished, and handed to a sweep for 1m0s more}":               {State: journal.Unfinished, Left: left},
		"unfinished. No retry runs until it is resolved, freed or swept": {State: journal.Unfinished},
		"unfinished: its limit was 1m0s ago. No retry":                   {State: journal.Unfinished, Left: ago},
		"unfinished: the time of its sweep ended 1m0s ago. No retry":     {State: journal.Unfinished, Left: ago, Attempts: 2},
		"done, without a response; ends in 1m0s}":                        {State: journal.Done, Left: left},
		"done; ends in 1m0s}":                                            {State: journal.Done, Left: left, Response: true},
		"running, 0s until its limit} {swept 1}":                         {State: journal.Running, Attempts: 1},
		"running, 0s until its limit} {swept 3} {note order 7}":          {State: journal.Running, Attempts: 3, Note: []byte("order 7")},
	} {
		f := Finding{Inspection: middleware.Inspection{Redis: lock.Info{State: lock.Held}, HasJournal: true}, Row: row}
		if got := fmt.Sprint(f.Lines(time.Now())); !strings.Contains(got, "{redis held} {journal "+want) {
			t.Errorf("%+v: %s", row, got)
		}
	}
}

// The flags of a request give the key that the service derives from it, and the output repeats all but the client's key: of a
// mistyped one the command cannot know.
func TestInspectByRequest(t *testing.T) {
	s := openMini(t)
	ann, tenant := keyfunc.BasicUser(), func(*http.Request) (string, error) { return "acme", nil }
	r := httptest.NewRequest(http.MethodPost, "http://Shop.Example.com:8080/payments?a=1", nil)
	r.SetBasicAuth("ann", "")
	r.Header.Set("Idempotency-Key", `"k1"`)
	const route = ` -method "POST" -path "/payments"`
	for _, c := range []struct {
		key         keyfunc.Func
		flags, made string
	}{
		{keyfunc.Standard(ann), "-key=k1 -user=ann -path=/payments?b=2 -method=post", ` -user "ann"` + route},
		{keyfunc.Standard(keyfunc.Compose(tenant, ann)), "-key=k1 -user=acme -user=ann -path=/payments", ` -user "acme" -user "ann"` + route},
		{keyfunc.Compose(keyfunc.Standard(ann), keyfunc.Host()), "-key=k1 -user=ann -path=/payments -host=SHOP.example.com:8080", ` -user "ann" -host "shop.example.com:8080"` + route},
		{keyfunc.Standard(keyfunc.Anonymous()), "-key=k1 -anonymous -path=/payments", route},
		{profile.ACP().Key(ann), `-key="k1" -user=ann -path=/payments`, ` -user "ann"` + route}, // an opaque key has the client's quotes
		{profile.Stripe().Key(ann), `-key="k1" -user=ann -no-route`, ` -user "ann"`},
	} {
		key, err := c.key(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"inspect", "resolve -nothing-happened -reason r -token t", "forget -reason r -token t"} {
			s.run(command+" -namespace=shop "+c.flags).
				want(exitFree, "key      "+s.locker.StorageKey(key)+"\nmade of  -namespace \"shop\""+c.made+"\nstate    free").hides("k1")
		}
	}
	s.run("inspect -help").want(exitDone, "for keyfunc.Opaque, as in package profile, as the client sent it")
}

// A response that is stored encrypted shows with its keys alone. Its state shows in any case. Resolve needs them too.
func TestKeysFile(t *testing.T) {
	old, now := bytes.Repeat([]byte("o"), keySize), bytes.Repeat([]byte{0xfb}, keySize)
	s := openMini(t, middleware.WithEncryption(now))
	s.works = true
	s.post("k1")
	key := s.key("k1")
	s.run("inspect "+key).want(exitDone, "settled:", "stored   cannot be read: ", "encrypted")
	s.run("inspect -json "+key).want(exitDone, `"state":"settled"`, `"stored":{"unreadable":"`)
	right := writeFile(t, base64.URLEncoding.EncodeToString(now)+"\n\n"+hex.EncodeToString(old))
	s.run("inspect "+key+" -keys-file "+right).want(exitDone, "stored   status 201")
	s.run("scan -namespace shop -status 200-599").want(exitDone, "found 0 responses, and 1 that cannot be read (-keys-file)")

	key = s.strand("k2")
	wrong := writeFile(t, hex.EncodeToString(old))
	s.change("resolve -status 201", key).want(exitRefused, "encrypted")
	s.change("resolve -status 201 -keys-file "+wrong, key).want(exitRefused, "no key of WithEncryption decrypts it")
	s.change("resolve -status 201 -keys-file "+right, key).want(exitDone, "resolved")
	if w := s.post("k2"); w.Code != http.StatusCreated || w.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

func TestParseKeys(t *testing.T) {
	t.Parallel()
	key := bytes.Repeat([]byte{0xfb}, keySize)
	digits, std, safe := hex.EncodeToString(key), base64.StdEncoding.EncodeToString(key), base64.URLEncoding.EncodeToString(key)
	keys, err := parseKeys(strings.Join([]string{digits, strings.ToUpper(digits), std, safe, std[:43], safe[:43] + "\r"}, "\n\n"))
	if err != nil || len(keys) != 6 || slices.ContainsFunc(keys, func(got []byte) bool { return !bytes.Equal(got, key) }) {
		t.Errorf("%x, %v", keys, err)
	}
	for _, text := range []string{"", "# secret", "secret", digits[2:], base64.StdEncoding.EncodeToString(key[1:])} {
		keys, err := parseKeys(text)
		if err == nil || len(keys) > 0 || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("%q: %x, %v", text, keys, err)
		}
	}
}

// FuzzParseKeys parses arbitrary texts. Each key has 32 bytes, and parses again from its hexadecimal digits.
func FuzzParseKeys(f *testing.F) {
	f.Add(strings.Repeat("fb", keySize) + "\n" + strings.Repeat("-", 43) + "=")
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := parseKeys(text)
		if (err == nil) != (len(keys) > 0) {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
		for _, key := range keys {
			again, err := parseKeys(hex.EncodeToString(key))
			if len(key) != keySize || err != nil || len(again) != 1 || !bytes.Equal(again[0], key) {
				t.Errorf("%x, %x, %v", key, again, err)
			}
		}
	})
}
