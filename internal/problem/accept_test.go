package problem

import (
	"strings"
	"testing"
)

// A browser's Accept is read, and one that is longer than any browser's is not.
//
// fault: a client without a key sends an Accept of 1 MiB -> it is refused without parsing that
func TestLongAccept(t *testing.T) {
	const html = "text/html,application/xhtml+xml,*/*;q=0.8"
	for name, c := range map[string]struct {
		accept []string
		want   bool
	}{
		"a browser's":                          {[]string{html}, true},
		"HTML":                                 {[]string{"text/html"}, true},
		"in capitals":                          {[]string{"TEXT/HTML ; Q=1"}, true},
		"the least weight":                     {[]string{"text/html;q=0.001"}, true},
		"more than JSON":                       {[]string{"application/json;q=0.5, text/html;q=0.6"}, true},
		"nothing":                              {nil, false},
		"anything":                             {[]string{"*/*"}, false},
		"JSON":                                 {[]string{"application/json"}, false},
		"both":                                 {[]string{"application/json, text/html"}, false},
		"not HTML":                             {[]string{"text/html;q=0, */*"}, false},
		"a malformed weight":                   {[]string{"text/html;q=none"}, false},
		"a negative weight":                    {[]string{"text/html;q=-1, application/json;q=0"}, false},
		"a weight above 1":                     {[]string{"text/html;q=2"}, false},
		"in many lines":                        {[]string{"", "*/*;q=0.1", html}, true},
		"just short enough":                    {[]string{html + strings.Repeat(",", 4<<10-1-len(html))}, true},
		"commas":                               {[]string{html + strings.Repeat(",", 4<<10-len(html))}, false},
		"lines":                                {append([]string{html}, make([]string, 4<<10)...), false},
		"JSON in two ranges, the better last":  {[]string{"application/json;q=0.3,text/html;q=0.5,application/problem+json;q=0.9"}, false},
		"JSON in two ranges, the better first": {[]string{"application/problem+json;q=0.9,application/json;q=0.3,text/html;q=0.5"}, false},
		"JSON in two ranges, HTML is better":   {[]string{"application/json;q=0.3,application/problem+json;q=0.4,text/html;q=0.5"}, true},
		"a range that names JSON more closely": {[]string{"*/*;q=0.9,application/json;q=0.1,text/html;q=0.5"}, true},
	} {
		if got := prefersHTML(c.accept); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
	long := []string{html + strings.Repeat(",", 1<<20)}
	if n := testing.AllocsPerRun(10, func() { prefersHTML(long) }); n > 0 {
		t.Errorf("%v allocations for an Accept that is too long", n)
	}
}
