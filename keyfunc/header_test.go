package keyfunc_test

import (
	"bufio"
	"errors"
	"net/http"
	"net/textproto"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/keyfunc"
)

func withKey(lines ...string) *http.Request {
	r := post("/orders")
	if lines != nil {
		r.Header["Idempotency-Key"] = lines
	}
	return r
}

var byHeader = keyfunc.Header("Idempotency-Key")

// expectAll checks the keys of header lines.
func expectAll(t *testing.T, wants map[string]string) {
	t.Helper()
	for line, want := range wants {
		expect(t, byHeader, withKey(line), want, nil)
	}
}

// expectInvalid checks that each line is refused.
func expectInvalid(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		expect(t, byHeader, withKey(line), "", keyfunc.ErrInvalid)
	}
}

// conformance: 1, 2, 3, 5, 7, 8
func TestHeader(t *testing.T) {
	t.Parallel()
	expect(t, byHeader, withKey(), "", keyfunc.ErrMissing)
	expect(t, byHeader, withKey([]string{}...), "", keyfunc.ErrMissing)
	expectAll(t, map[string]string{
		`"~a~"`: "~a~", `"abc"`: "abc", `"a b  c"`: "a b  c", `" "`: " ", `  "abc" `: "abc",
		`"8e03978e-40d5-43e8-bc93-6894a57f9324"`: "8e03978e-40d5-43e8-bc93-6894a57f9324",
		`"a,b;c='d'"`:                            "a,b;c='d'", `"\""`: `"`, `"\\"`: `\`, `"\\\"x\"\\"`: `\"x"\`,

		"8e03978e-40d5-43e8-bc93-6894a57f9324": "8e03978e-40d5-43e8-bc93-6894a57f9324",
		"abc":                                  "abc", " abc  ": "abc", "42": "42", "a=b/c:d+e": "a=b/c:d+e", "@{[(x)]}!?#$%&*^_`|~<>.-": "@{[(x)]}!?#$%&*^_`|~<>.-",
	})
	expectInvalid(t, ``, `   `, `""`, `"";p=1`, `"`, `"abc`, `"abc\`, `"abc\"`, `"a\nb"`, `"a\/b"`, "\t\"abc\"", "\"abc\"\t",
		"\"a\tb\"", "\"a\nb\"", `"käse"`, "\"\xff\"", `"abc"x`, `"abc" x`, `"abc" "def"`, `"abc""def"`)
	expectInvalid(t, "a b", "abc;p=1", "'abc'", "a'b", `abc"`, `a"b"c`, `a\b`, "käse", "\tabc", "abc\t", "a\x00b", "a\x7fb")
	for _, lines := range [][]string{{`"abc"`, `"def"`}, {"abc", "abc"}, {"", "abc"}, {"abc", ""}, {`"abc`, `def"`}} {
		expect(t, byHeader, withKey(lines...), "", keyfunc.ErrInvalid)
	}
	expectInvalid(t, `"abc","def"`, `"abc", "def"`, `"abc",`, `abc,def`, `abc, def`)
}

// TestHeaderOctets tests every octet in a string, alone and after a backslash.
//
// conformance: 2, 3
func TestHeaderOctets(t *testing.T) {
	t.Parallel()
	for c := range 256 {
		octet := string([]byte{byte(c)})
		isSpecial := octet == `"` || octet == `\`
		if isSpecial {
			expect(t, byHeader, withKey(`"\`+octet+`"`), octet, nil)
		} else {
			expectInvalid(t, `"\`+octet+`"`)
		}
		if isSpecial || c < 0x20 || c > 0x7e {
			expectInvalid(t, `"<`+octet+`>"`)
		} else {
			expect(t, byHeader, withKey(`"<`+octet+`>"`), "<"+octet+">", nil)
		}
	}
}

// conformance: 4
func TestHeaderParameters(t *testing.T) {
	t.Parallel()
	for _, params := range []string{
		`;p`, `;p=1`, `; p=1`, `;   p`, `;*`, `;a1_-.*=1`, `;p=1;q=2; r`, `;p;p`,
		`;p=-1`, `;p=999999999999999`, `;p=-999999999999999`, `;p=00`,
		`;p=1.0`, `;p=-0.125`, `;p=123456789012.123`, `;p=1.125;quite_long`,
		`;p=""`, `;p="a;b,c"`, `;p="\"\\"`,
		`;p=tok`, `;az=az`, `;p=A`, `;p=Z`, `;p=*`, `;p=T:a/b!#$%&'*+-.^_|~` + "`", `;p=text/plain`,
		`;p=::`, `;p=:YQ==:`, `;p=:YWI=:`, `;p=:YWJj:`, `;p=:YWI:`, `;p=:YQ=:`, `;p=:+/+/:`,
		`;p=?0`, `;p=?1`,
		`;p=@0`, `;p=@-62135596800`, `;p=@1659578233`,
		`;p=%""`, `;p=%"plain"`, `;p=%"f%c3%bc"`, `;p=%"\"`, `;p=%"%25%22"`,
		`;p=%"%e2%82%ac"`, `;p=%"%e0%a0%80%ed%9f%bf%ee%80%80"`, `;p=%"%f0%90%80%80%f3%bf%bf%bf%f4%8f%bf%bf"`, `;p=%"%df%bf"`,
	} {
		expectAll(t, map[string]string{`"abc"` + params: "abc", `  "abc"` + params + `  `: "abc"})
	}
	for _, params := range []string{
		`;`, `; `, `;;p`, ` ;p`, `;p =1`, `;p= 1`, `;p=`, `;p=;q`, `;P=1`, `;1=1`, `;-p`, `;=1`, `;pP`, "\t;p", ";\tp",
		`;p=1 ;q`, `;p=1,`, `;p=1 x`, `,"def"`,
		`;p=-`, `;p=--1`, `;p=+1`, `;p=1000000000000000`,
		`;p=1.`, `;p=.1`, `;p=-.1`, `;p=1.2345`, `;p=1234567890123.1`, `;p=1.2.3`, `;p=1e3`,
		`;p="`, `;p="a`, `;p="\`, `;p="\a"`, `;p="ü"`,
		`;p=!a`, `;p='a'`, `;p=a"b"`, `;p=a(b)`,
		`;p=:`, `;p=:YQ==`, `;p=:Y:`, `;p=:YWJjZ:`, `;p=:=:`, `;p=:==:`, `;p=:=YQ=:`, `;p=:YQ===:`, `;p=:YWJj=:`, `;p=:YWI==:`, `;p=:Y Q:`, `;p=:Y-_:`, `;p=:Y.:`,
		`;p=?`, `;p=?2`, `;p=?01`, `;p=?T`,
		`;p=@`, `;p=@1.5`, `;p=@x`, `;p=@1000000000000000`,
		`;p=%`, `;p=%a`, `;p=%"`, `;p=%"a`, `;p=%"%"`, `;p=%"%c"`, `;p=%"%C3%BC"`, `;p=%"%c3%Bc"`, `;p=%"%4a%4A"`, `;p=%"%cG"`, `;p=%"%ff"`, `;p=%"%c3"`, `;p=%"ü"`, `;p=%"%`, `;p=%"%c`,
		`;p=%"%c1%bf"`, `;p=%"%e0%9f%bf"`, `;p=%"%ed%a0%80"`, `;p=%"%f0%8f%bf%bf"`, `;p=%"%f4%90%80%80"`, `;p=%"%e2%82"`, `;p=%"%80"`,
		`;p=(1 2)`, `;p={}`,
	} {
		expectInvalid(t, `"abc"`+params)
	}
}

// conformance: 9
func TestHeaderLength(t *testing.T) {
	t.Parallel()
	a := func(n int) string { return strings.Repeat("a", n) }
	escapes := func(n int) string { return strings.Repeat(`\"`, n) }
	expectAll(t, map[string]string{
		a(255): a(255), `"` + escapes(255) + `"`: strings.Repeat(`"`, 255), `   ` + a(255) + `   `: a(255),
		`"` + a(255) + `";p="` + a(1000) + `"`: a(255), `"k";` + a(4<<10-4): "k",
	})
	// fault: a client sends 1 MiB of parameters after its key -> the key is refused without parsing them
	expectInvalid(t, a(256), `"`+escapes(256)+`"`, a(1<<20), `"k";`+a(4<<10-3), `"k";`+a(1<<20))
}

// conformance: 11
func TestHeaderNameAndCase(t *testing.T) {
	t.Parallel()
	raw := "idempotency-KEY: AbC\r\nx-request-token: t\r\n\r\n"
	h, err := textproto.NewReader(bufio.NewReader(strings.NewReader(raw))).ReadMIMEHeader()
	if err != nil {
		t.Fatal(err)
	}
	r := post("/")
	r.Header = http.Header(h)

	expect(t, keyfunc.Header("Idempotency-Key"), r, "AbC", nil)
	expect(t, keyfunc.Header("IDEMPOTENCY-key"), r, "AbC", nil)
	expect(t, keyfunc.Header("X-Request-Token"), r, "t", nil)
	expect(t, keyfunc.Header("X-Other"), r, "", keyfunc.ErrMissing)
}

func FuzzHeader(f *testing.F) {
	for _, line := range []string{
		``, `abc`, ` abc `, `"abc"`, `"a\"b\\c"`, `"a\`, `"abc";p=1;q`, `"abc";p=:YQ==:`, `"abc";d=@1;s=%"f%c3%bc"`,
		`"abc";x=-1.5;y=?0;z="\""`, `"abc", "def"`, `'abc'`, "\"\t\"", "\xff", strings.Repeat("a", 256),
	} {
		f.Add(line)
	}
	fn := byHeader
	f.Fuzz(func(t *testing.T, line string) {
		key, err := fn(withKey(line))
		if err != nil {
			expect(t, fn, withKey(line), "", keyfunc.ErrInvalid)
			return
		}
		if len(key) < 1 || len(key) > 255 {
			t.Fatalf("a key of %d characters", len(key))
		}
		for i := range len(key) {
			if key[i] < 0x20 || key[i] > 0x7e {
				t.Fatalf("key = %q has octet %#x", key, key[i])
			}
		}
		serialised := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		expect(t, fn, withKey(serialised), key, nil)
		expect(t, fn, withKey("  "+serialised+" "), key, nil)
		expect(t, fn, withKey(line, line), "", keyfunc.ErrInvalid)
	})
}

// What a header's string would not be is part of an opaque key; white space around it is not.
func TestOpaque(t *testing.T) {
	t.Parallel()
	fn := keyfunc.Opaque("idempotency-key")
	for line, want := range map[string]string{`"abc"`: `"abc"`, `"abc`: `"abc`, "a,b;c=d": "a,b;c=d", " \t\"a\" \t": `"a"`} {
		expect(t, fn, withKey(line), want, nil)
	}
	for _, line := range []string{" ", "\t"} {
		expect(t, fn, withKey(line), "", keyfunc.ErrInvalid)
	}
	expect(t, fn, withKey([]string{}...), "", keyfunc.ErrMissing)
}

// FuzzOpaque: a key is what was sent, without the white space around it, or an error that does not repeat it.
func FuzzOpaque(f *testing.F) {
	for _, seed := range []string{"abc", `"abc"`, " a ", "é", "\x00"} {
		f.Add(seed)
	}
	fn := keyfunc.Opaque("Idempotency-Key")
	f.Fuzz(func(t *testing.T, line string) {
		got, err := fn(withKey(line))
		switch {
		case err == nil && (got == "" || len(got) > 255 || got != strings.Trim(line, " \t")):
			t.Fatalf("%q: %q", line, got)
		case err != nil && (got != "" || !errors.Is(err, keyfunc.ErrInvalid)):
			t.Fatalf("%q: %q, %v", line, got, err)
		}
	})
}
