package system_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
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

	"lock":                   {"internal/option", "lock/internal/lease", "lock/internal/store", "lock/internal/pipeline", "lock/internal/notify", "lock/internal/rediserr", "internal/background"},
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

// withoutRedis are the packages that do not import go-redis: a lease's life and the background work are tested without
// any server.
var withoutRedis = []string{"lock/internal/lease", "internal/background"}

const (
	module  = "github.com/onceguard/onceguard/"
	goRedis = "github.com/redis/go-redis/"
)

func TestImports(t *testing.T) {
	t.Parallel()
	packages := listPackages(t)
	for path := range allowedImports {
		if _, ok := packages[path]; !ok {
			t.Errorf("%s does not exist; remove it from allowedImports", path)
		}
	}
	for path, imports := range packages {
		allowed, ok := allowedImports[path]
		if !ok {
			t.Errorf("%s has no entry in allowedImports", path)
			continue
		}
		for _, imported := range imports {
			own, isOwn := strings.CutPrefix(imported, module)
			switch {
			case isOwn && !slices.Contains(allowed, own):
				t.Errorf("%s imports %s; allowed are %q", path, own, allowed)
			case strings.HasPrefix(imported, goRedis) && slices.Contains(withoutRedis, path):
				t.Errorf("%s imports %s; it must not know Redis", path, imported)
			}
		}
	}
}

// listPackages returns the packages that users import, and all below them, with their imports. Tests do not count.
func listPackages(t *testing.T) map[string][]string {
	t.Helper()
	command, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go command: ", err)
	}
	list := exec.CommandContext(t.Context(), command, "list", "-json=ImportPath,GoFiles,Imports",
		module+"middleware/...", module+"once/...", module+"internal/run/...", module+"internal/problem/...", module+"internal/record/...", module+"internal/background/...", module+"internal/operate/...", module+"keyfunc/...", module+"journal/...", module+"lock/...", module+"admin/...",
		module+"oncetest/...", module+"profile/...")
	out, err := list.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("%v: %v\n%s", list, err, exit.Stderr)
		}
		t.Fatalf("%v: %v", list, err)
	}
	packages := map[string][]string{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath       string
			GoFiles, Imports []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) > 0 { // more than tests
			packages[strings.TrimPrefix(p.ImportPath, module)] = p.Imports
		}
	}
}
