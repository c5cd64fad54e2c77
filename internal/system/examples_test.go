package system_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// fault: pkg.go.dev leaves out an Example that is named after a variable, such as an error, or after nothing at all.
// Expected: it shows every Example.
func TestExamplesAreShown(t *testing.T) {
	t.Parallel()
	total := 0
	err := filepath.WalkDir("../..", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if d.Name() == "testdata" || d.Name() == ".git" {
			return fs.SkipDir
		}
		fset := token.NewFileSet()
		var files, tests []*ast.File
		sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
		for _, source := range sources {
			file, err := parser.ParseFile(fset, source, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			if files = append(files, file); strings.HasSuffix(source, "_test.go") {
				tests = append(tests, file)
			}
		}
		missing := map[string]bool{}
		for _, e := range doc.Examples(tests...) {
			missing[e.Name] = true
			total++
		}
		if err != nil || len(missing) == 0 || strings.Contains(dir, "/internal/") {
			return err
		}
		p, err := doc.NewFromFiles(fset, files, "example.com/"+filepath.Base(dir))
		if err != nil {
			return err
		}
		for _, e := range shown(p) {
			delete(missing, e.Name)
		}
		for name := range missing {
			t.Errorf("%s: Example%s is not shown", dir, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if total < 100 {
		t.Errorf("found %d Examples, want more", total)
	}
}

// shown returns the Examples that a package's page has.
func shown(p *doc.Package) (examples []*doc.Example) {
	examples = append(examples, p.Examples...)
	funcs := p.Funcs
	for _, typ := range p.Types {
		examples = append(examples, typ.Examples...)
		funcs = append(append(funcs, typ.Funcs...), typ.Methods...)
	}
	for _, f := range funcs {
		examples = append(examples, f.Examples...)
	}
	return examples
}
