package canonical

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Pointers is a set of JSON Pointers (RFC 6901), as a tree: this is where they begin, or where some have led to. It is not
// changed after ParsePointers, so it may be read concurrently. The nil set is empty.
type Pointers struct {
	isEnd bool                 // one of them ends here
	steps map[string]*Pointers // by reference token, unescaped
}

// ParsePointers returns the set of the pointers. The error names the first that is not a JSON Pointer, or that is empty:
// it leads to the whole text.
func ParsePointers(pointers []string) (*Pointers, error) {
	root := new(Pointers)
	for _, pointer := range pointers {
		tokens, ok := ParsePointer(pointer)
		if !ok {
			return nil, fmt.Errorf("%q is not a JSON Pointer to a part of the body, such as \"/sent_at\"", pointer)
		}
		at := root
		for _, token := range tokens {
			at = at.add(token)
		}
		at.isEnd = true
	}
	return root, nil
}

// ParsePointer returns the reference tokens of a JSON Pointer, unescaped. ok is false if it is none, or is empty.
func ParsePointer(pointer string) (tokens []string, ok bool) {
	rest, ok := strings.CutPrefix(pointer, "/")
	if !ok || !utf8.ValidString(pointer) || strings.Contains(legalEscapes.Replace(pointer), "~") {
		return nil, false
	}
	for token := range strings.SplitSeq(rest, "/") {
		tokens = append(tokens, unescape.Replace(token))
	}
	return tokens, true
}

var (
	legalEscapes = strings.NewReplacer("~0", "", "~1", "")
	unescape     = strings.NewReplacer("~0", "~", "~1", "/")
)

// add returns where the token leads to.
func (p *Pointers) add(token string) *Pointers {
	if p.steps == nil {
		p.steps = map[string]*Pointers{}
	}
	if p.steps[token] == nil {
		p.steps[token] = new(Pointers)
	}
	return p.steps[token]
}

// end reports whether one of the pointers leads to just here.
func (p *Pointers) end() bool { return p != nil && p.isEnd }

// member returns where the pointers lead to in the member of an object, or nil if none does.
func (p *Pointers) member(name string) *Pointers {
	if p == nil {
		return nil
	}
	return p.steps[name]
}

// element returns where the pointers lead to in an element of an array, counted from 0, or nil if none does. An index has
// no sign and no leading zero (RFC 6901, section 4).
func (p *Pointers) element(i int) *Pointers {
	if p == nil {
		return nil
	}
	return p.steps[strconv.Itoa(i)]
}
