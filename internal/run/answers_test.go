package run_test

import (
	"testing"

	"github.com/onceguard/onceguard/internal/run"
)

// Each kind has an outcome, each that refuses a problem with a page, and each that Begin and Conclude return an error for
// functions, except Expired, as a once.Key has no age. What is the same for all answers of one type of problem, or with one
// error, is.
//
// fault: a problem is added, and a part of its answer is forgotten
func TestAnswers(t *testing.T) {
	t.Parallel()
	byType, byErr := map[string]run.HTTP{}, map[error]run.Call{}
	for kind := run.Unprotected; kind < run.KindCount; kind++ {
		a := kind.Answer()
		if a.Outcome == "" {
			t.Errorf("kind %d has no outcome", kind)
		}
		if kind < run.InFlight {
			continue
		}
		h, c := a.HTTP, a.Call
		if h.Type == "" || h.Status < 400 || h.Title == "" || h.Detail == "" || h.Heading == "" || h.Text == "" {
			t.Errorf("the problem of kind %d lacks something: %+v", kind, h)
		}
		if first, ok := byType[h.Type]; ok && (first.Status != h.Status || first.Title != h.Title) {
			t.Errorf("%s has two statuses or titles: %+v, %+v", h.Type, first, h)
		}
		byType[h.Type] = h
		if c.Err == nil && kind <= run.CommitUnknown && kind != run.Expired {
			t.Errorf("kind %d has no error for functions", kind)
		}
		if isEmpty := c == (run.Call{}); !isEmpty && (c.Code == 0 || c.Reason == "" || c.Text == "") {
			t.Errorf("the status of kind %d for gRPC lacks something: %+v", kind, c)
		}
		if c.Err == nil {
			continue
		}
		if first, ok := byErr[c.Err]; ok && first != c {
			t.Errorf("%v has two answers of gRPC: %+v, %+v", c.Err, first, c)
		}
		byErr[c.Err] = c
		if got := run.CallOf(c.Err); got == nil || *got != c {
			t.Errorf("CallOf(%v) is %+v, want %+v", c.Err, got, c)
		}
	}
}
