package sqljournal_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// A journal knows no door: of the root module, the package imports journal alone, and Do also once.
func TestImportsNoDoor(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	imported := false
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			const root = `"github.com/onceguard/onceguard/`
			if path, ok := strings.CutPrefix(spec.Path.Value, root); ok && path != `journal"` && !(name == "do.go" && path == `once"`) {
				t.Errorf("%s imports %s", name, spec.Path.Value)
			} else if ok {
				imported = true
			}
		}
	}
	if !imported {
		t.Error("no file imports journal: the test looks at the wrong files")
	}
}
