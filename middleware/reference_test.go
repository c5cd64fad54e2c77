package middleware_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/middleware"
)

// The tables of docs/reference.md are tied to the code: what only one of the two has fails a test.

var reference = sync.OnceValue(func() string {
	text, err := os.ReadFile("../docs/reference.md")
	if err != nil {
		panic(err)
	}
	return string(text)
})

// referenceTable returns the cells of the first table under a heading of docs/reference.md, without its head.
func referenceTable(heading string) (rows [][]string) {
	_, section, _ := strings.Cut(reference(), "\n## "+heading+"\n")
	_, table, _ := strings.Cut(section, "|---|")
	_, table, _ = strings.Cut(table, "\n")
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}

// sources returns the files of a package, parsed, without its tests.
func sources(t *testing.T, dir string) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// exported returns what a package exports, with its comment: "Name", and "Type.Method".
func exported(t *testing.T, dir string) map[string]string {
	t.Helper()
	names := map[string]string{}
	for _, file := range sources(t, dir) {
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					receiver := d.Recv.List[0].Type
					if pointer, ok := receiver.(*ast.StarExpr); ok {
						receiver = pointer.X
					}
					if generic, ok := receiver.(*ast.IndexExpr); ok {
						receiver = generic.X
					}
					name = receiver.(*ast.Ident).Name + "." + name
				}
				names[name] = d.Doc.Text()
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						names[s.Name.Name] = d.Doc.Text()
					case *ast.ValueSpec:
						for _, name := range s.Names {
							names[name.Name] = s.Doc.Text()
						}
					}
				}
			}
		}
	}
	maps.DeleteFunc(names, func(name, _ string) bool { return !ast.IsExported(name) })
	return names
}

func isOption(name string) bool {
	return strings.HasPrefix(name, "With") && !strings.Contains(name, ".")
}

// The comment of each option says what is the default.
func TestOptionsNameTheirDefaults(t *testing.T) {
	t.Parallel()
	options := 0
	for _, dir := range []string{".", "../lock"} {
		for name, doc := range exported(t, dir) {
			if !isOption(name) {
				continue
			}
			options++
			if !strings.Contains(strings.ToLower(doc), "default") {
				t.Errorf("%s: the comment of %s does not", dir, name)
			}
		}
	}
	if options < 25 {
		t.Errorf("%d options found, want more", options)
	}
}

// Each outcome is in one of the two tables: that of Events, or as the outcome of a problem. Those of internal/run and of
// package once are among them, and those of internal/run's answers are in both packages.
func TestReferenceOutcomes(t *testing.T) {
	t.Parallel()
	var listed []string
	for _, row := range referenceTable("Events") {
		listed = append(listed, strings.Trim(row[0], "`"))
	}
	for _, p := range problems() {
		for _, outcome := range p.outcomes {
			if !slices.Contains(listed, string(outcome)) {
				listed = append(listed, string(outcome))
			}
		}
	}
	made := outcomesOf(t, ".")
	slices.Sort(listed)
	slices.Sort(made)
	if !slices.Equal(listed, made) {
		t.Errorf("the table has %q, the code has %q", listed, made)
	}
	for _, dir := range []string{"../internal/run", "../once"} {
		for _, outcome := range outcomesOf(t, dir) {
			if !slices.Contains(made, outcome) {
				t.Errorf("%s has the outcome %q, and this package has none of that name", dir, outcome)
			}
		}
	}
	inOnce := outcomesOf(t, "../once")
	for kind := run.Unprotected; kind < run.KindCount; kind++ {
		a := kind.Answer()
		if kind >= run.InFlight {
			name := strings.TrimPrefix(middleware.Problems()[kind-run.InFlight].Type, "urn:onceguard:problem:")
			if !slices.Contains(problems()[name].outcomes, middleware.Outcome(a.Outcome)) {
				t.Errorf("%s: the table lacks the outcome %q", name, a.Outcome)
			}
		}
		isForeign := kind == run.FingerprintChanged || kind == run.Expired // its record is not of package once; a once.Key has no age
		if kind <= run.CommitUnknown && !isForeign && !slices.Contains(inOnce, string(a.Outcome)) {
			t.Errorf("package once lacks the outcome %q", a.Outcome)
		}
	}
}

// outcomesOf returns the texts of the constants of type Outcome in a package.
func outcomesOf(t *testing.T, dir string) (texts []string) {
	t.Helper()
	for _, file := range sources(t, dir) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if of, ok := spec.Type.(*ast.Ident); ok && of.Name == "Outcome" && len(spec.Values) == 1 {
				texts = append(texts, strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`))
			}
			return true
		})
	}
	return texts
}

// What the README and the pages call by its name exists.
func TestPagesNameWhatExists(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	dirs, err := filepath.Glob("../contrib/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range append(dirs, "../middleware", "../lock", "../keyfunc", "../sqljournal", "../onceclient") {
		for name := range exported(t, dir) {
			names[filepath.Base(dir)+"."+name] = true
			if strings.Contains(name, ".") {
				names[name] = true // a method, by its type
			}
			if isOption(name) {
				names[name] = true
			}
		}
	}
	name := regexp.MustCompile(`\b((?:middleware|lock|keyfunc|sqljournal|Execution|Locker|Journal|Middleware)\.[A-Z]\w*)|` + "`(With[A-Z]\\w*)")
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllStringSubmatch(string(text), -1) {
			found++
			if name := m[1] + m[2]; !names[name] && !strings.Contains(name, ".Test") { // tests: internal/system
				t.Errorf("%s names %s, which does not exist", page, name)
			}
		}
	}
	if found < 100 {
		t.Errorf("%d names found, want more", found)
	}
}
