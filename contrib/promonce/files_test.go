package promonce_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"

	"github.com/onceguard/onceguard/middleware"
)

// promtool, of Debian's package prometheus, fails with its output.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip("left out: needs promtool")
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// alerts_test.yml has each alert with its labels and its text.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", "alerts.yml")
	promtool(t, "test", "rules", "alerts_test.yml")
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// exposed returns the labels of every metric, and the series onceguard_... of its buckets.
func exposed(t *testing.T) map[string][]string {
	t.Helper()
	m, reg := newMetrics(t)
	e := everything()
	m.Observe(t.Context(), e)
	e.Shadow, e.Differs = true, true
	m.Observe(t.Context(), e)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, f := range families {
		labels := []string{"instance", "job", "pod"} // of the target
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		found[f.GetName()] = labels
		if f.GetMetric()[0].GetHistogram() != nil {
			found[f.GetName()+"_bucket"] = append(labels, "le")
		}
	}
	return found
}

// values are all of some labels.
var values = map[string][]string{
	"error_type": {"", "lease_lost", "outside_transaction", "stored_5xx"},
	"phase":      {"claim", "journal", "settle"},
	"outcome": {
		string(middleware.Executed), string(middleware.CookiesDropped), string(middleware.NotStored),
		string(middleware.Freed), string(middleware.Unknown), string(middleware.Panicked), string(middleware.LeaseLost),
		string(middleware.Unprotected), string(middleware.Replayed), string(middleware.InFlight),
		string(middleware.Reused), string(middleware.NotReplayable), string(middleware.OutcomeUnknown),
		string(middleware.FingerprintChanged), string(middleware.Unreadable), string(middleware.MissingKey),
		string(middleware.InvalidKey), string(middleware.ExpiredKey), string(middleware.KeyFailed),
		string(middleware.NoUser), string(middleware.TooLarge), string(middleware.BodyUnreadable),
		string(middleware.StoreUnavailable),
	},
}

var (
	aSelector = regexp.MustCompile(`\b(onceguard[_:][\w:]+)(?:\{([^}]*)\})?`)
	aMatcher  = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"([^"]*)"`)
	aGrouping = regexp.MustCompile(`\b(?:by|without) \(([^)]*)\)`)
)

// used checks that the expression has only metrics, labels and values that there are, and returns the metrics. promtool has
// parsed it.
func used(t *testing.T, where, expr string, exposed map[string][]string) (names []string) {
	t.Helper()
	for _, s := range aSelector.FindAllStringSubmatch(expr, -1) {
		name := s[1]
		if names = append(names, name); exposed[name] == nil {
			t.Errorf("%s: there is no metric %s", where, name)
		}
		for _, m := range aMatcher.FindAllStringSubmatch(s[2], -1) {
			known := values[m[1]]
			for value := range strings.SplitSeq(m[2], "|") {
				if !slices.Contains(exposed[name], m[1]) || known != nil && !slices.Contains(known, value) {
					t.Errorf("%s: %s has no %s %q", where, name, m[1], value)
				}
			}
		}
	}
	for _, g := range aGrouping.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(g[1], ", ") {
			if !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(exposed[name], label) }) {
				t.Errorf("%s: grouped by %s, which none of %v has", where, label, names)
			}
		}
	}
	return names
}

// The alerts use what there is, each is tested, and each leads to a section of the runbook.
func TestAlertsUseWhatThereIs(t *testing.T) {
	t.Parallel()
	var file struct {
		Groups []struct {
			Rules []struct {
				Record, Alert, Expr string
				Annotations         map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(readFile(t, "alerts.yml")), &file); err != nil {
		t.Fatal(err)
	}
	metrics, tests := exposed(t), readFile(t, "alerts_test.yml")
	runbook := strings.ReplaceAll(strings.ToLower(readFile(t, "../../docs/operate.md")), " ", "-")
	runbook = regexp.MustCompile(`[^\w\n#-]`).ReplaceAllString(runbook, "")
	for _, r := range file.Groups[0].Rules {
		names := used(t, r.Alert+r.Record, r.Expr, metrics)
		if r.Record != "" {
			metrics[r.Record] = metrics[names[0]]
			continue
		}
		_, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "/docs/operate.md#")
		if !strings.Contains(runbook, "#-"+anchor+"\n") {
			t.Errorf("%s: the runbook has no section #%s", r.Alert, anchor)
		}
		if !strings.Contains(tests, "alertname: "+r.Alert+"\n        exp_alerts") {
			t.Errorf("%s is not tested", r.Alert)
		}
	}
}

// The panels use what there is, and every metric is on one, and in the package comment with its labels.
func TestDashboardUsesWhatThereIs(t *testing.T) {
	t.Parallel()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal([]byte(readFile(t, "dashboard.json")), &board); err != nil {
		t.Fatal(err)
	}
	metrics, onPanels := exposed(t), map[string]bool{}
	fill := strings.NewReplacer("$__rate_interval", "5m", "$__range", "5m")
	var rules []map[string]string
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			for _, name := range used(t, p.Title, q.Expr, metrics) {
				onPanels[strings.TrimSuffix(name, "_bucket")] = true
			}
			if n := strings.Count(q.Expr, "{"); n != strings.Count(q.Expr, `{job=~"$job", locker=~"$locker"`) {
				t.Errorf("%s: a metric is not selected by job and locker: %s", p.Title, q.Expr)
			}
			for _, label := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(q.LegendFormat, -1) {
				if !strings.Contains(q.Expr, label[1]) {
					t.Errorf("%s: the legend has the label %s", p.Title, label[1])
				}
			}
			rules = append(rules, map[string]string{"record": fmt.Sprint("panel:", len(rules)), "expr": fill.Replace(q.Expr)})
		}
	}
	doc := readFile(t, "doc.go")
	for name, labels := range metrics {
		if strings.HasSuffix(name, "_bucket") {
			continue
		}
		line := regexp.MustCompile(`(?m)^//\t` + name + ` .*$`).FindString(doc)
		for _, label := range labels[3:] {
			if label != "locker" && !strings.Contains(line, label) {
				t.Errorf("the package comment does not have the label %s of %s", label, name)
			}
		}
		if line == "" || !onPanels[name] {
			t.Errorf("%s is in the package comment: %t, and on a panel: %t", name, line != "", onPanels[name])
		}
	}
	file := filepath.Join(t.TempDir(), "panels.yml") // JSON is YAML
	content, _ := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": rules}}})
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}
