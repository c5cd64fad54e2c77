package profile_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/problem"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/profile"
)

type object = map[string]any

// refusal returns the status and the body with which profile i refuses a request, or for -1 package middleware.
func refusal(i int, p middleware.Problem) (status string, body any) {
	encoded, _ := json.Marshal(p)
	if i >= 0 {
		p.Status = profile.Answers()[strings.TrimPrefix(p.Type, problem.TypePrefix)][i].Status
		w := httptest.NewRecorder()
		profile.Refuse(profiles[i], w, httptest.NewRequest(http.MethodPost, "/", nil), p)
		encoded = w.Body.Bytes()
	}
	_ = json.Unmarshal(encoded, &body)
	return strconv.Itoa(p.Status), body
}

// The files of docs/openapi have each problem, with the answer that a client gets, under its status, and Retry-After where it
// may come.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	for file, i := range map[string]int{"default": -1, "acp": 0, "ucp": 1, "stripe": 2} {
		text, err := os.ReadFile("../docs/openapi/" + file + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var document object
		if err := json.Unmarshal(text, &document); err != nil {
			t.Fatal(err)
		}
		want, got, retried := map[string]object{}, map[string]object{}, map[string]bool{}
		for kind := run.InFlight; kind < run.KindCount; kind++ {
			p := problem.New(kind)
			status, body := refusal(i, middleware.Problem{Type: p.Type, Title: p.Title, Status: p.Status, Detail: p.Detail})
			name := strings.TrimPrefix(p.Type, problem.TypePrefix)
			retried[status] = retried[status] || p.Retryable
			if want[status] == nil {
				want[status] = object{}
			}
			if want[status][name] == nil { // the first kind of a type has the detail that is most common
				want[status][name] = object{"summary": p.Title, "value": body}
			}
		}
		for status, response := range at(document, "#/components/responses").(object) {
			for _, content := range at(response, "#/content").(object) {
				got[status] = at(content, "#/examples").(object)
			}
			if (at(response, "#/headers/Retry-After") != nil) != retried[status] {
				t.Errorf("%s: Retry-After of %s: want %t", file, status, retried[status])
			}
		}
		for status := range want {
			if !reflect.DeepEqual(got[status], want[status]) {
				t.Errorf("%s: %s has the examples %v, want %v", file, status, got[status], want[status])
			}
		}
		if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
			t.Errorf("%s has the statuses of %v, want those of %v", file, got, want)
		}
		walk(document, func(ref string) {
			if at(document, ref) == nil {
				t.Errorf("%s: %s leads to nothing", file, ref)
			}
		})
	}
}

// walk calls f for each $ref in v. No list of the documents has one.
func walk(v any, f func(ref string)) {
	members, _ := v.(object)
	for name, inside := range members {
		if ref, ok := inside.(string); ok && name == "$ref" {
			f(ref)
		}
		walk(inside, f)
	}
}

// at returns what a reference inside a document leads to.
func at(document any, ref string) any {
	for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		inside, _ := document.(object)
		document = inside[name]
	}
	return document
}
