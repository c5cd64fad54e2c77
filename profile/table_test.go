package profile_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/problem"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/profile"
)

var profiles = []profile.Profile{profile.ACP(), profile.UCP(), profile.Stripe()}

// defaults has the status of each problem of package middleware.
func defaults() map[string]int {
	statuses := map[string]int{}
	for kind := run.InFlight; kind < run.KindCount; kind++ {
		p := problem.New(kind)
		statuses[strings.TrimPrefix(p.Type, problem.TypePrefix)] = p.Status
	}
	return statuses
}

// Every problem has a row, and the package's doc has that row. The status differs from the default only for a mismatch.
//
// fault: a new problem of package middleware -> it has an answer in every profile
func TestTable(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n// # Problems\n")
	documented := map[string][]string{}
	for line := range strings.Lines(section) {
		if row, isCode := strings.CutPrefix(line, "//\t"); isCode {
			cells := strings.Fields(row)
			documented[cells[0]] = cells[1:]
		}
	}
	delete(documented, "problem") // the head
	answers := profile.Answers()
	for name, status := range defaults() {
		row, ok := answers[name]
		if !ok {
			t.Errorf("%s has no row", name)
			continue
		}
		acp, ucp, stripe := row[0], row[1], row[2]
		want := []string{
			fmt.Sprint(acp.Status), acp.Kind, acp.Code, fmt.Sprint(ucp.Status), fmt.Sprint(stripe.Status), stripe.Kind, stripe.Code,
		}
		if stripe.Code == "" {
			want = want[:6]
		}
		if !slices.Equal(documented[name], want) {
			t.Errorf("%s: the doc has %q, want %q", name, documented[name], want)
		}
		if acp.Code != ucp.Code || ucp.Kind != "" {
			t.Errorf("%s: UCP's code is %q, ACP's %q", name, ucp.Code, acp.Code)
		}
		for i, a := range row {
			if a.Status != status && name != "key-reused" {
				t.Errorf("%s: %v has %d, the default is %d", name, profiles[i], a.Status, status)
			}
		}
	}
	if len(documented) != len(answers) || len(answers) != len(defaults()) {
		t.Errorf("%d rows in the doc, %d in the table, %d problems", len(documented), len(answers), len(defaults()))
	}
}

// A problem is written as each API writes its errors.
func TestErrors(t *testing.T) {
	t.Parallel()
	for name, row := range profile.Answers() {
		for i, a := range row {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("Accept", "text/html")
			problem := middleware.Problem{Type: "urn:onceguard:problem:" + name, Status: a.Status, Title: "the title", Detail: "the detail"}
			profile.Refuse(profiles[i], w, r, problem)
			message := "the detail"
			if name == "key-invalid" { // the detail describes RFC 9651
				message = "An idempotency key has 1 to 255 printable ASCII characters and must be sent exactly once."
			}
			want := []map[string]any{
				{"type": a.Kind, "code": a.Code, "message": message},
				{"code": a.Code, "content": message},
				{"error": map[string]any{"type": a.Kind, "code": a.Code, "message": message}},
			}[i]
			if a.Code == "" {
				delete(want["error"].(map[string]any), "code")
			}
			var got map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%v, %s: got %s, %v, want %v", profiles[i], name, w.Body, err, want)
			}
			if w.Code != a.Status || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%v, %s: got %d, %v, want %d", profiles[i], name, w.Code, w.Header(), a.Status)
			}
		}
	}
}
