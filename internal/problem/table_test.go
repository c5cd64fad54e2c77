package problem

import (
	"testing"

	"github.com/onceguard/onceguard/internal/run"
)

// Each kind that is refused has words, and those of one name have one status and title.
//
// fault: a kind is added, and a part of its words is forgotten
func TestTable(t *testing.T) {
	t.Parallel()
	byName := map[string]words{}
	for kind := run.InFlight; kind < run.KindCount; kind++ {
		w := table[kind]
		if w.name == "" || w.status < 400 || w.title == "" || w.detail == "" || w.heading == "" || w.text == "" {
			t.Errorf("the problem of kind %d lacks something: %+v", kind, w)
		}
		if first, ok := byName[w.name]; ok && (first.status != w.status || first.title != w.title) {
			t.Errorf("%s has two statuses or titles: %+v, %+v", w.name, first, w)
		}
		byName[w.name] = w
		if got := New(kind); got.Type != TypePrefix+w.name || got.Retryable != kind.Answer().Retry || !IsType(w.name) {
			t.Errorf("kind %d is the problem %+v", kind, got)
		}
	}
	if IsType("") || IsType("none") {
		t.Error("a name without a problem is a type")
	}
}
