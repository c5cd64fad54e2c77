package promonce_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"

	"github.com/onceguard/onceguard/contrib/internal/words"
	"github.com/onceguard/onceguard/middleware"
)

// program returns the path of a program of Debian's package prometheus.
func program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("%s is required: %v", name, err)
	default:
		t.Skipf("left out: needs %s", name)
	}
	return path
}

// promtool runs it, and fails with its output.
func promtool(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command(program(t, "promtool"), args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestAlertRules(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", "alerts.yml")
	promtool(t, "test", "rules", "alerts_test.yml")
}

// rule is one of alerts.yml.
type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

func readRules(t *testing.T) (rules []rule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	if err := yaml.UnmarshalStrict(readFile(t, "alerts.yml"), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// target is a query of a panel.
type target struct{ panel, expr, legend string }

// readDashboard returns all queries of the dashboard, with window for Grafana's intervals, and everything selected.
func readDashboard(t *testing.T, window string) (targets []target) {
	t.Helper()
	var board struct {
		Templating struct {
			List []struct{ Name, Definition string }
		}
		Panels []struct {
			ID         int
			Type       string
			Title      string
			Datasource struct{ UID string }
			Targets    []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(readFile(t, "dashboard.json"), &board); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("$__rate_interval", window, "$__range", window, "$job", ".*", "$locker", ".*")
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("two panels with the id %d", p.ID)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			continue
		}
		if p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("%s: datasource %q, %d targets", p.Title, p.Datasource.UID, len(p.Targets))
		}
		for _, q := range p.Targets {
			if n := strings.Count(q.Expr, "{"); n != strings.Count(q.Expr, `{job=~"$job", locker=~"$locker"`) {
				t.Errorf("%s: a metric is not selected by job and locker: %s", p.Title, q.Expr)
			}
			targets = append(targets, target{p.Title, fill.Replace(q.Expr), q.LegendFormat})
		}
	}
	for _, v := range board.Templating.List[1:] {
		expr := strings.TrimPrefix(v.Definition, "label_values(")
		targets = append(targets, target{"variable " + v.Name, fill.Replace(expr[:strings.LastIndexByte(expr, ',')]), "{{" + v.Name + "}}"})
	}
	return targets
}

// exposed returns the labels of every metric of the registry, histograms by the names of their series.
func exposed(t *testing.T) map[string][]string {
	t.Helper()
	m, reg := newMetrics(t)
	e := everything(middleware.Executed)
	m.Observe(t.Context(), e)
	e.Shadow, e.Differs = true, true
	m.Observe(t.Context(), e)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, f := range families {
		labels := []string{"instance", "job"} // of the target
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		found[f.GetName()] = labels
		if f.GetMetric()[0].GetHistogram() != nil {
			found[f.GetName()+"_bucket"] = append(slices.Clone(labels), "le")
		}
	}
	return found
}

var (
	aGrouping = regexp.MustCompile(`\b(?:by|without) \(([^)]*)\)`)
	aSelector = regexp.MustCompile(`\b([a-zA-Z_:][\w:]*)(?:\{([^}]*)\})?`)
	aMatcher  = regexp.MustCompile(`(\w+) *(?:=~|!~|!=|=) *"([^"]*)"`)
	aLegend   = regexp.MustCompile(`\{\{ *(\w+) *\}\}`)
	aTemplate = regexp.MustCompile(`\$labels\.(\w+)`)
)

// noMetrics are what is no metric in the expressions.
var noMetrics = strings.Fields("sum max max_over_time rate increase histogram_quantile by without offset unless or and")

// used checks that the expression uses only metrics, labels and values that there are, and returns the metrics. promtool
// has parsed it.
func used(t *testing.T, where, expr string, metrics map[string][]string) (names []string) {
	t.Helper()
	values := map[string][]string{"error_type": words.ErrorTypes(), "phase": {"claim", "journal", "settle"}}
	for _, o := range everyOutcome {
		values["outcome"] = append(values["outcome"], string(o))
	}
	var grouped []string
	expr = aGrouping.ReplaceAllStringFunc(expr, func(g string) string {
		for label := range strings.SplitSeq(aGrouping.FindStringSubmatch(g)[1], ",") {
			grouped = append(grouped, strings.TrimSpace(label))
		}
		return ""
	})
	known := []string{"pod"}
	for _, s := range aSelector.FindAllStringSubmatch(expr, -1) {
		name, matchers := s[1], s[2]
		if slices.Contains(noMetrics, name) {
			continue
		}
		labels, ok := metrics[name]
		if !ok {
			t.Errorf("%s: there is no metric %s", where, name)
		}
		names, known = append(names, name), append(known, labels...)
		for _, m := range aMatcher.FindAllStringSubmatch(matchers, -1) {
			if !slices.Contains(labels, m[1]) {
				t.Errorf("%s: %s has no label %s", where, name, m[1])
			}
			for value := range strings.SplitSeq(m[2], "|") {
				if all := values[m[1]]; all != nil && value != "" && !slices.Contains(all, value) {
					t.Errorf("%s: %s has no %s %q", where, name, m[1], value)
				}
			}
		}
		if rest := strings.Trim(aMatcher.ReplaceAllString(matchers, ""), ", "); rest != "" {
			t.Errorf("%s: %s{%s}: %q is not understood", where, name, matchers, rest)
		}
	}
	for _, label := range grouped {
		if !slices.Contains(known, label) {
			t.Errorf("%s: grouped by %s, which none of %v has", where, label, names)
		}
	}
	return names
}

func TestAlertsUseWhatThereIs(t *testing.T) {
	t.Parallel()
	metrics := exposed(t)
	for _, r := range readRules(t) {
		names := used(t, r.Alert+r.Record, r.Expr, metrics)
		if r.Record != "" {
			metrics[r.Record] = metrics[names[0]]
			continue
		}
		for _, note := range []string{"summary", "description", "runbook_url"} {
			if r.Annotations[note] == "" {
				t.Errorf("%s has no %s", r.Alert, note)
			}
			for _, label := range aTemplate.FindAllStringSubmatch(r.Annotations[note], -1) {
				if !slices.Contains(metrics[names[0]], label[1]) {
					t.Errorf("%s: the %s names the label %s", r.Alert, note, label[1])
				}
			}
		}
		_, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "/docs/operate.md#")
		if !slices.Contains(anchors(t), anchor) {
			t.Errorf("%s: the runbook has no section #%s", r.Alert, anchor)
		}
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s has the severity %q", r.Alert, s)
		}
	}
}

// anchors returns those of the runbook's sections, as GitHub makes them.
func anchors(t *testing.T) (all []string) {
	t.Helper()
	for _, section := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(readFile(t, "../../docs/operate.md")), -1) {
		plain := regexp.MustCompile(`[^\w -]`).ReplaceAllString(strings.ToLower(section[1]), "")
		all = append(all, strings.ReplaceAll(plain, " ", "-"))
	}
	return all
}

// Every panel can be drawn, and every metric is on one.
func TestDashboardUsesWhatThereIs(t *testing.T) {
	t.Parallel()
	metrics, onPanels := exposed(t), map[string]bool{}
	var rules []map[string]string
	for i, q := range readDashboard(t, "5m") {
		for _, name := range used(t, q.panel, q.expr, metrics) {
			onPanels[strings.TrimSuffix(name, "_bucket")] = true
		}
		grouped := aGrouping.FindStringSubmatch(q.expr)
		for _, label := range aLegend.FindAllStringSubmatch(q.legend, -1) {
			if !strings.HasPrefix(q.panel, "variable") && (grouped == nil || !slices.Contains(strings.Split(grouped[1], ", "), label[1])) {
				t.Errorf("%s: the legend has the label %s", q.panel, label[1])
			}
		}
		rules = append(rules, map[string]string{"record": fmt.Sprintf("panel:%d", i), "expr": q.expr})
	}
	for name := range metrics {
		if !onPanels[strings.TrimSuffix(name, "_bucket")] {
			t.Errorf("%s is on no panel", name)
		}
	}
	file := filepath.Join(t.TempDir(), "panels.yml")
	content, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": rules}}})
	if err = errors.Join(err, os.WriteFile(file, content, 0o600)); err != nil { // JSON is YAML
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}

// The table of metrics in the package comment has all of them, with their labels.
func TestDocumentationNamesEveryMetric(t *testing.T) {
	t.Parallel()
	doc := string(readFile(t, "doc.go"))
	metrics := exposed(t)
	maps.DeleteFunc(metrics, func(name string, _ []string) bool { return strings.HasSuffix(name, "_bucket") })
	for name, labels := range metrics {
		line := regexp.MustCompile(`(?m)^//\t` + name + ` +(counter|gauge|histogram) +(.*)$`).FindStringSubmatch(doc)
		if line == nil {
			t.Errorf("doc.go does not have %s", name)
			continue
		}
		for _, label := range labels {
			if own := !slices.Contains([]string{"instance", "job", "locker"}, label); own && !strings.Contains(line[2], label) {
				t.Errorf("doc.go does not have the label %s of %s", label, name)
			}
		}
	}
	if n := strings.Count(doc, "\n//\tonceguard_"); n != len(metrics) {
		t.Errorf("doc.go has %d metrics, want %d", n, len(metrics))
	}
}
