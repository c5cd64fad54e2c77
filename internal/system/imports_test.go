package system_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// allowedImports has, for each package that users import and for all below it, the packages of this module that it may
// import. A package that is missing here may not exist: a new one gets a place in the layers first.
var allowedImports = map[string][]string{
	"middleware": {
		"keyfunc", "lock", "journal", "internal/run", "internal/record", "internal/canonical", "internal/reread", "internal/option",
		"internal/problem", "middleware/internal/capture", "middleware/internal/shadow", "middleware/internal/response",
	},
	"middleware/internal/capture":  {"journal", "middleware/internal/response"},
	"middleware/internal/shadow":   {"internal/run", "internal/reread", "middleware/internal/capture", "middleware/internal/response"},
	"internal/problem":             {"keyfunc", "internal/run"},
	"middleware/internal/response": {"internal/record"},

	"profile": {"middleware", "keyfunc", "internal/option"},

	"once": {"lock", "journal", "internal/run", "internal/record", "internal/canonical", "internal/option"},

	"internal/run":    {"lock", "journal", "internal/inrun", "internal/record", "internal/background", "internal/option"},
	"internal/record": {"internal/option"},

	"keyfunc": {"internal/canonical", "internal/reread", "internal/option"},

	"journal": {"internal/inrun"},

	"lock": {
		"internal/option", "internal/background",
		"lock/internal/lease", "lock/internal/store", "lock/internal/pipeline", "lock/internal/notify", "lock/internal/rediserr",
	},
	"lock/quorum":            {"lock", "internal/option"},
	"lock/internal/lease":    {"lock/internal/store", "internal/background"},
	"lock/internal/store":    {"lock/internal/pipeline", "lock/internal/rediserr", "internal/background"},
	"lock/internal/pipeline": {"lock/internal/rediserr", "internal/background"},
	"lock/internal/notify":   {"lock/internal/rediserr", "internal/background"},
	"lock/internal/rediserr": {},
	"internal/background":    {},

	"internal/operate": {"lock", "journal", "middleware", "keyfunc", "internal/run"},

	"admin":    {"lock", "journal", "middleware", "internal/operate"},
	"oncetest": {}, // it drives any handler, and knows none of our packages
}

// layers are the packages that allowedImports has to name.
var layers = []string{
	"./admin/...", "./internal/background", "./internal/operate", "./internal/problem", "./internal/record", "./internal/run", "./journal/...",
	"./keyfunc/...", "./lock/...", "./middleware/...", "./once/...", "./oncetest/...", "./profile/...",
}

// withoutRedis are the packages that do not import go-redis: a lease's life and the background work are tested without
// any server.
var withoutRedis = []string{"lock/internal/lease", "internal/background"}

const (
	module  = "github.com/onceguard/onceguard/"
	goRedis = "github.com/redis/go-redis/"
)

func TestImports(t *testing.T) {
	t.Parallel()
	checked := 0
	list := goList(t, ".", append([]string{"-f", `{{if .GoFiles}}{{.ImportPath}} {{join .Imports " "}}{{end}}`}, layers...)...)
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue // it has only tests, which do not count
		}
		path := strings.TrimPrefix(words[0], module)
		allowed, ok := allowedImports[path]
		if !ok {
			t.Errorf("%s has no entry in allowedImports", path)
			continue
		}
		checked++
		for _, imported := range words[1:] {
			own, isOwn := strings.CutPrefix(imported, module)
			switch {
			case isOwn && !slices.Contains(allowed, own):
				t.Errorf("%s imports %s; allowed are %q", path, own, allowed)
			case strings.HasPrefix(imported, goRedis) && slices.Contains(withoutRedis, path):
				t.Errorf("%s imports %s; it must not know Redis", path, imported)
			}
		}
	}
	if checked != len(allowedImports) {
		t.Errorf("allowedImports has %d packages, and %d exist", len(allowedImports), checked)
	}
}

// goList returns what go list prints in the module in a folder.
func goList(t *testing.T, folder string, args ...string) string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	list.Dir = filepath.Join("../..", folder)
	var stderr strings.Builder
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", list, err, &stderr)
	}
	return string(out)
}
