package keyfunc

import "regexp"

// parameters matches the parameters of an Item of RFC 9651, section 4.2.3.2.
var parameters = regexp.MustCompile(`^(?:; *[a-z*][a-z0-9_\-.*]*(?:=(?:` +
	sfNumber + `|` + sfString + `|` + sfToken + `|` + sfBytes + `|` + sfBoolean + `|` + sfDate + `|` + sfDisplay + `))?)*$`)

// The Bare Items of section 4.2.3.1.
const (
	sfNumber  = `-?(?:[0-9]{1,15}|[0-9]{1,12}\.[0-9]{1,3})`
	sfString  = `"(?:[ !#-\[\]-~]|\\["\\])*"`
	sfToken   = "[A-Za-z*][A-Za-z0-9!#$%&'*+\\-.^_`|~:/]*"
	sfBytes   = `:(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}={0,2}|[A-Za-z0-9+/]{3}=?)?:` // padding is optional
	sfBoolean = `\?[01]`
	sfDate    = `@-?[0-9]{1,15}`
	sfDisplay = `%"(?:[ !#$&-~]|%[0-7]` + anyHex + `|` + begin2 + next + `|` + begin3 + next + `|` + begin4 + next + next + `)*"`
)

// The percent-encoded octets of UTF-8 (RFC 3629, section 4): the last ones, and those with which a character of two, three or
// four begins, up to the one that rules out longer forms than are needed, surrogates, and what is above U+10FFFF.
const (
	anyHex = `[0-9a-f]`
	next   = `%[89ab]` + anyHex
	begin2 = `%(?:c[2-9a-f]|d` + anyHex + `)`
	begin3 = `%(?:e0%[ab]` + anyHex + `|e[1-9a-cef]` + next + `|ed%[89]` + anyHex + `)`
	begin4 = `%(?:f0%[9ab]` + anyHex + `|f[1-3]` + next + `|f4%8` + anyHex + `)`
)
