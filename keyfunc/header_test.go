package keyfunc_test

import (
	"bufio"
	"errors"
	"fmt"
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

type headerCase struct {
	name  string
	lines []string
	want  string
	err   error
}

func runHeader(t *testing.T, cases []headerCase) {
	t.Helper()
	fn := keyfunc.Header("Idempotency-Key")
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			expect(t, fn, withKey(c.lines...), c.want, c.err)
		})
	}
}

func good(line, want string) headerCase { return headerCase{line, []string{line}, want, nil} }
func bad(line string) headerCase {
	return headerCase{line, []string{line}, "", keyfunc.ErrInvalid}
}

// conformance: 1, 2, 3, 8
func TestHeaderString(t *testing.T) {
	t.Parallel()
	runHeader(t, []headerCase{
		{"absent", nil, "", keyfunc.ErrMissing},
		{"no lines", []string{}, "", keyfunc.ErrMissing},
		good(`"~a~"`, "~a~"),
		good(`"abc"`, "abc"),
		good(`"a b  c"`, "a b  c"),
		good(`" "`, " "),
		good(`  "abc" `, "abc"),
		good(`"8e03978e-40d5-43e8-bc93-6894a57f9324"`, "8e03978e-40d5-43e8-bc93-6894a57f9324"),
		good(`"a,b;c='d'"`, "a,b;c='d'"),
		good(`"\""`, `"`),
		good(`"\\"`, `\`),
		good(`"\\\"x\"\\"`, `\"x"\`),
		bad(``),
		bad(`   `),
		bad(`""`),
		bad(`"";p=1`),
		bad(`"`),
		bad(`"abc`),
		bad(`"abc\`),
		bad(`"abc\"`),
		bad(`"a\nb"`),
		bad(`"a\/b"`),
		bad("\t\"abc\""),
		bad("\"abc\"\t"),
		bad("\"a\tb\""),
		bad("\"a\nb\""),
		bad(`"käse"`),
		bad("\"\xff\""),
		bad(`"abc"x`),
		bad(`"abc" x`),
		bad(`"abc" "def"`),
		bad(`"abc""def"`),
	})
}

// TestHeaderStringOctets tests every octet in a string, alone and after a backslash.
//
// conformance: 2, 3
func TestHeaderStringOctets(t *testing.T) {
	t.Parallel()
	fn := keyfunc.Header("Idempotency-Key")
	for c := range 256 {
		octet := string([]byte{byte(c)})

		want, wantErr := "<"+octet+">", error(nil)
		if c < 0x20 || c > 0x7e || octet == `"` || octet == `\` {
			want, wantErr = "", keyfunc.ErrInvalid
		}
		t.Run(fmt.Sprintf("plain %#02x", c), func(t *testing.T) {
			t.Parallel()
			expect(t, fn, withKey(`"<`+octet+`>"`), want, wantErr)
		})

		escaped, escapedErr := "", keyfunc.ErrInvalid
		if octet == `"` || octet == `\` {
			escaped, escapedErr = octet, nil
		}
		t.Run(fmt.Sprintf("escaped %#02x", c), func(t *testing.T) {
			t.Parallel()
			expect(t, fn, withKey(`"\`+octet+`"`), escaped, escapedErr)
		})
	}
}

// conformance: 4
func TestHeaderParameters(t *testing.T) {
	t.Parallel()
	var cases []headerCase
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
	} {
		cases = append(cases, good(`"abc"`+params, "abc"), good(`  "abc"`+params+`  `, "abc"))
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
		`;p=(1 2)`, `;p={}`,
	} {
		cases = append(cases, bad(`"abc"`+params))
	}
	runHeader(t, cases)
}

// conformance: 5
func TestHeaderTwice(t *testing.T) {
	t.Parallel()
	runHeader(t, []headerCase{
		{"two strings", []string{`"abc"`, `"def"`}, "", keyfunc.ErrInvalid},
		{"the same twice", []string{"abc", "abc"}, "", keyfunc.ErrInvalid},
		{"an empty one first", []string{"", "abc"}, "", keyfunc.ErrInvalid},
		{"an empty one last", []string{"abc", ""}, "", keyfunc.ErrInvalid},
		{"one string on two lines", []string{`"abc`, `def"`}, "", keyfunc.ErrInvalid},
		bad(`"abc","def"`),
		bad(`"abc", "def"`),
		bad(`"abc",`),
		bad(`abc,def`),
		bad(`abc, def`),
	})
}

// conformance: 7, 8
func TestHeaderBare(t *testing.T) {
	t.Parallel()
	runHeader(t, []headerCase{
		good("8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324"),
		good("abc", "abc"),
		good(" abc  ", "abc"),
		good("42", "42"),
		good("a=b/c:d+e", "a=b/c:d+e"),
		good("@{[(x)]}!?#$%&*^_`|~<>.-", "@{[(x)]}!?#$%&*^_`|~<>.-"),
		bad("a b"),
		bad("abc;p=1"),
		bad("'abc'"),
		bad("a'b"),
		bad(`abc"`),
		bad(`a"b"c`),
		bad(`a\b`),
		bad("käse"),
		bad("\tabc"),
		bad("abc\t"),
		bad("a\x00b"),
		bad("a\x7fb"),
	})
}

// conformance: 9
func TestHeaderLength(t *testing.T) {
	t.Parallel()
	a := func(n int) string { return strings.Repeat("a", n) }
	escapes := func(n int) string { return strings.Repeat(`\"`, n) }
	runHeader(t, []headerCase{
		{"1 bare", []string{a(1)}, a(1), nil},
		{"255 bare", []string{a(255)}, a(255), nil},
		{"256 bare", []string{a(256)}, "", keyfunc.ErrInvalid},
		{"255 quoted", []string{`"` + a(255) + `"`}, a(255), nil},
		{"256 quoted", []string{`"` + a(256) + `"`}, "", keyfunc.ErrInvalid},
		{"255 escaped", []string{`"` + escapes(255) + `"`}, strings.Repeat(`"`, 255), nil},
		{"256 escaped", []string{`"` + escapes(256) + `"`}, "", keyfunc.ErrInvalid},
		{"parameters do not count", []string{`"` + a(255) + `";p="` + a(1000) + `"`}, a(255), nil},
		{"spaces around do not count", []string{`   ` + a(255) + `   `}, a(255), nil},
		{"a megabyte", []string{a(1 << 20)}, "", keyfunc.ErrInvalid},
	})
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

func TestHeaderDoesNotAllocate(t *testing.T) {
	fn := keyfunc.Header("idempotency-key")
	for _, line := range []string{"8e03978e-40d5", `"8e03978e-40d5"`, `"8e03978e-40d5";p=1`} {
		r := withKey(line)
		if n := testing.AllocsPerRun(100, func() { _, _ = fn(r) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", line, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = fn(withoutKey) }); n != 0 {
		t.Errorf("no key: %v allocations, want 0", n)
	}
}

var withoutKey = post("/orders")

func FuzzHeader(f *testing.F) {
	for _, line := range []string{
		``, `abc`, ` abc `, `"abc"`, `"a\"b\\c"`, `"a\`, `"abc";p=1;q`, `"abc";p=:YQ==:`, `"abc";d=@1;s=%"f%c3%bc"`,
		`"abc";x=-1.5;y=?0;z="\""`, `"abc", "def"`, `'abc'`, "\"\t\"", "\xff", strings.Repeat("a", 256),
	} {
		f.Add(line)
	}
	fn := keyfunc.Header("Idempotency-Key")
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

// fault: a client sends 1 MiB of parameters after its key -> the key is refused without parsing them
func TestLongParameters(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]error{4 << 10: nil, 4<<10 + 1: keyfunc.ErrInvalid, 1 << 20: keyfunc.ErrInvalid} {
		line := `"k";` + strings.Repeat("a", size-4)
		r := &http.Request{Header: http.Header{"Idempotency-Key": {line}}}
		if _, err := keyfunc.Header("Idempotency-Key")(r); !errors.Is(err, want) {
			t.Errorf("a line of %d bytes: %v, want %v", size, err, want)
		}
	}
}
