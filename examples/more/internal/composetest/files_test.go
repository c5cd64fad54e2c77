package composetest_test

import (
	"encoding/json"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"
)

// root is the top of the repository.
const root = "../../../.."

// composition is compose.yml. Parsing refuses what is not here.
type composition struct {
	Name     string
	Services map[string]service
	Volumes  map[string]struct{}
}

type service struct {
	Image       string
	WorkingDir  string `yaml:"working_dir"`
	Command     []string
	Environment map[string]string
	Ports       []string
	Volumes     []string
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Healthcheck struct {
		Test     []string
		Interval string
		Retries  int
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func parse(t *testing.T, name string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(read(t, name), into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func readComposition(t *testing.T) (c composition) {
	t.Helper()
	parse(t, "compose.yml", &c)
	return c
}

// flag returns the value of a flag of the service's program.
func (s service) flag(name string) string {
	if i := slices.Index(s.Command, name); i >= 0 && i+1 < len(s.Command) {
		return s.Command[i+1]
	}
	return ""
}

// source returns the file or folder of the repository that the service has at a path, or "".
func (s service) source(at string) string {
	for _, volume := range s.Volumes {
		from, to, _ := strings.Cut(strings.TrimSuffix(volume, ":ro"), ":")
		if rest, ok := strings.CutPrefix(at, to); ok && (rest == "" || rest[0] == '/') && strings.HasPrefix(from, ".") {
			return path.Join(from, rest)
		}
	}
	return ""
}

// port returns the one on which the service listens.
func (s service) port() string {
	if _, port, ok := strings.Cut(s.flag("-addr"), ":"); ok {
		return port
	}
	name, _, _ := strings.Cut(s.Image, ":")
	return map[string]string{"redis": "6379", "postgres": "5432", "prom/prometheus": "9090", "grafana/grafana": "3000"}[name]
}

func TestPathsExist(t *testing.T) {
	t.Parallel()
	c := readComposition(t)
	for name, s := range c.Services {
		for _, volume := range s.Volumes {
			from, _, _ := strings.Cut(volume, ":")
			if _, isVolume := c.Volumes[from]; isVolume {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, from)); err != nil || !strings.HasSuffix(volume, ":ro") {
				t.Errorf("%s mounts %s: %v; want what is there, and :ro", name, volume, err)
			}
		}
		for other, on := range s.DependsOn {
			isHealthy := on.Condition == "service_healthy"
			if of, ok := c.Services[other]; !ok || isHealthy != (of.Healthcheck.Test != nil) {
				t.Errorf("%s depends on %s: %+v", name, other, on)
			}
		}
		if s.WorkingDir != "" {
			program := s.source(path.Join(s.WorkingDir, s.Command[2]))
			if _, err := os.Stat(filepath.Join(root, program, "main.go")); program == "" || err != nil {
				t.Errorf("%s runs %s in %s: %v", name, s.Command, s.WorkingDir, err)
			}
		}
	}
}

// A file that names a service names the port on which it listens.
func TestPortsAgree(t *testing.T) {
	t.Parallel()
	c := readComposition(t)
	published := map[string]string{}
	for name, s := range c.Services {
		for _, port := range s.Ports {
			on, inside, _ := strings.Cut(strings.TrimPrefix(port, "127.0.0.1:"), ":")
			if inside != s.port() || published[on] != "" || !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s, which listens on %s, publishes %s; %s is %q", name, s.port(), port, on, published[on])
			}
			published[on] = name
		}
	}

	names := strings.Join(slices.Sorted(maps.Keys(c.Services)), "|")
	anAddress := regexp.MustCompile(`\b(` + names + `):(\d+)\b`)
	anImage := regexp.MustCompile(`image: .*`)
	aHost := regexp.MustCompile(`(?:://|@|\[")([a-z]+):\d`)
	for _, file := range []string{"compose.yml", "examples/compose/prometheus.yml", "examples/compose/datasource.yml"} {
		text := anImage.ReplaceAllString(string(read(t, file)), "")
		addresses := anAddress.FindAllStringSubmatch(text, -1)
		for _, a := range addresses {
			if a[2] != c.Services[a[1]].port() {
				t.Errorf("%s: %s, but %s listens on %s", file, a[0], a[1], c.Services[a[1]].port())
			}
		}
		for _, host := range aHost.FindAllStringSubmatch(text, -1) {
			if _, ok := c.Services[host[1]]; !ok && host[1] != "onceguard" { // the user of PostgreSQL
				t.Errorf("%s: there is no service %s", file, host[1])
			}
		}
		if len(addresses) == 0 {
			t.Errorf("%s names no service", file)
		}
	}

	for _, url := range regexp.MustCompile(`http://127\.0\.0\.1:(\d+)(\S*)`).FindAllStringSubmatch(string(read(t, "compose.yml")), -1) {
		if published[url[1]] == "" {
			t.Errorf("%s is not published", url[0])
		}
	}
}

// Prometheus and Grafana find the alerts and the dashboard of contrib/promonce where their configurations say.
func TestConfigurationsFindTheirFiles(t *testing.T) {
	t.Parallel()
	c := readComposition(t)
	prometheus, grafana := c.Services["prometheus"], c.Services["grafana"]

	var scraping struct {
		Global        map[string]string
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []any    `yaml:"scrape_configs"`
	}
	parse(t, prometheus.source("/etc/prometheus/prometheus.yml"), &scraping) // where the image looks for it
	for _, file := range scraping.RuleFiles {
		if got := prometheus.source(path.Join("/etc/prometheus", file)); got != "contrib/promonce/alerts.yml" {
			t.Errorf("rule file %s is %q", file, got)
		}
	}

	var dashboards struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name, Type string
			Options    struct{ Path string }
		}
	}
	parse(t, grafana.source("/etc/grafana/provisioning/dashboards/onceguard.yml"), &dashboards)
	home := grafana.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	if got := grafana.source(home); got != "contrib/promonce/dashboard.json" || path.Dir(home) != dashboards.Providers[0].Options.Path {
		t.Errorf("the dashboard is %q; Grafana reads %+v", got, dashboards.Providers)
	}
	var board struct{ UID string }
	if err := json.Unmarshal(read(t, grafana.source(home)), &board); err != nil {
		t.Fatal(err)
	}
	if url := ":" + grafana.port() + "/d/" + board.UID; !strings.Contains(string(read(t, "compose.yml")), url) {
		t.Errorf("compose.yml does not say that the dashboard is at %s", url)
	}

	var sources struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, Type, URL string
			IsDefault       bool `yaml:"isDefault"`
		}
	}
	parse(t, grafana.source("/etc/grafana/provisioning/datasources/onceguard.yml"), &sources)
	if d := sources.Datasources; len(d) != 1 || d[0].Type != "prometheus" || !d[0].IsDefault {
		t.Errorf("got %+v, want Prometheus as the default", d)
	}
}
