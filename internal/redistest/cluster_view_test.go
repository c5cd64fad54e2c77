package redistest_test

import (
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
)

const master = "f3af 127.0.0.1:16101@26101 myself,master - 0 1795231085601 1 connected"

func TestParseView(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		want int // slots
		ok   bool
	}{
		"nothing":       {"", 0, true},
		"no slots":      {master + "\n", 0, true},
		"slots":         {master + " 0-5000 5002\n", 5002, true},
		"on the move":   {master + " 0-1 [1->-f3af] [9-<-f3af]\n", 2, true},
		"two nodes":     {master + " 0-1\n3bc2 127.0.0.1:16102@26102,name slave,fail f3af 0 1 1 connected\n", 2, true},
		"short":         {"f3af 127.0.0.1:16101@26101 master\n", 0, false},
		"no epoch":      {"f3af 127.0.0.1:16101@26101 master - 0 1 x connected\n", 0, false},
		"too many":      {master + " 0-16384\n", 0, false},
		"backwards":     {master + " 2-1\n", 0, false},
		"not a number":  {master + " a\n", 0, false},
		"no last one":   {master + " 1-\n", 0, false},
		"negative":      {master + " -1\n", 0, false},
		"after a blank": {"\n" + master + "\n", 0, false},
	} {
		got, err := redistest.ParseView(test.text)
		if (err == nil) != test.ok || test.ok && got != test.want {
			t.Errorf("%s: got %d, %v", name, got, err)
		}
	}
}

func FuzzParseView(f *testing.F) {
	f.Add(master + " 0-5000 5002 [1->-f3af]\n")
	f.Fuzz(func(t *testing.T, text string) {
		owned, err := redistest.ParseView(text)
		if owned < 0 || err != nil && owned != 0 {
			t.Errorf("got %d, %v", owned, err)
		}
	})
}
