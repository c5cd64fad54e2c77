package system_test

import (
	"flag"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
)

var updateAPI = flag.Bool("update", false, "write api.txt")

// TestAPI compares api.txt with everything that the packages of each module export that users import, so that a review sees
// each change of it. Only long tests compare the nested modules, as their dependencies may have to be downloaded.
func TestAPI(t *testing.T) {
	t.Parallel()
	want := strings.Split(strings.TrimSpace(readPage(t, "api.txt")), "\n")
	got := exportedAPI(t, ".")
	for _, folder := range nestedModules(t) {
		if *updateAPI || redistest.Rounds(false, true) {
			got = append(got, exportedAPI(t, folder)...)
			continue
		}
		want = slices.DeleteFunc(want, func(line string) bool { return strings.HasPrefix(line, "pkg "+folder+",") })
	}
	slices.Sort(got)
	if *updateAPI {
		if err := os.WriteFile("../../api.txt", []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if slices.Equal(got, want) {
		return
	}
	for _, line := range slices.Concat(got, want) {
		if is := slices.Contains(got, line); is != slices.Contains(want, line) {
			t.Errorf("exported: %t: %s", is, line)
		}
	}
	t.Error("api.txt is not what is exported, sorted. If that is meant: go test ./internal/system -run TestAPI -update")
}

// nestedModules returns the folders of the nested modules that users import.
func nestedModules(t *testing.T) (folders []string) {
	t.Helper()
	for _, pattern := range []string{"../../*/go.mod", "../../contrib/*/go.mod"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %q, %v", pattern, found, err)
		}
		for _, file := range found {
			folders = append(folders, strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), "../../"))
		}
	}
	return folders
}

// exportedAPI returns a line for each exported identifier, method and field of the packages that users import of the module
// in a folder.
func exportedAPI(t *testing.T, folder string) (lines []string) {
	t.Helper()
	exports := map[string]string{} // the files of the compiled packages by import path
	var paths []string             // of the packages that users import
	list := goList(t, folder, "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}\t{{.Name}}\t{{.DepOnly}}", "./...")
	for line := range strings.Lines(list) {
		p := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		exports[p[0]] = p[1]
		if p[1] != "" && p[2] != "main" && p[3] == "false" && !slices.Contains(strings.Split(p[0], "/"), "internal") {
			paths = append(paths, p[0])
		}
	}
	gc := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for _, path := range paths {
		pkg, err := gc.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		a := &api{pkg: pkg, prefix: "pkg " + strings.TrimPrefix(path, module) + ", "}
		for _, name := range pkg.Scope().Names() {
			if token.IsExported(name) {
				a.object(pkg.Scope().Lookup(name))
			}
		}
		lines = append(lines, a.lines...)
	}
	return lines
}

// api collects the lines of one package. They have the form of those in Go's own api folder.
type api struct {
	pkg    *types.Package
	prefix string
	lines  []string
}

func (a *api) add(format string, args ...any) {
	a.lines = append(a.lines, a.prefix+fmt.Sprintf(format, args...))
}

func (a *api) object(o types.Object) {
	switch o := o.(type) {
	case *types.Const:
		a.add("const %s %s = %s", o.Name(), a.text(o.Type()), o.Val())
	case *types.Var:
		a.add("var %s %s", o.Name(), a.text(o.Type()))
	case *types.Func:
		a.add("func %s%s", o.Name(), a.signature(o))
	case *types.TypeName:
		a.typeName(o)
	}
}

func (a *api) typeName(o *types.TypeName) {
	if o.IsAlias() {
		a.add("type %s = %s", o.Name(), a.text(types.Unalias(o.Type())))
		return
	}
	name := a.text(o.Type())
	switch u := o.Type().Underlying().(type) {
	case *types.Struct:
		a.add("type %s struct", name)
		a.fields(name, u)
	case *types.Interface:
		a.interfaceMethods(name, u)
		return
	default:
		a.add("type %s %s", name, a.text(u))
	}
	values := types.NewMethodSet(o.Type())
	for method := range types.NewMethodSet(types.NewPointer(o.Type())).Methods() {
		f := method.Obj().(*types.Func)
		receiver := "*" + name
		if values.Lookup(a.pkg, f.Name()) != nil {
			receiver = name
		}
		if f.Exported() {
			a.add("method (%s) %s%s", receiver, f.Name(), a.signature(f))
		}
	}
}

// fields adds the exported fields of a struct, also those of embedded structs that are not exported themselves.
func (a *api) fields(name string, s *types.Struct) {
	for f := range s.Fields() {
		embedded, isStruct := f.Type().Underlying().(*types.Struct)
		switch {
		case f.Exported() && f.Embedded():
			a.add("type %s struct, embedded %s", name, a.text(f.Type()))
		case f.Exported():
			a.add("type %s struct, %s %s", name, f.Name(), a.text(f.Type()))
		case f.Embedded() && isStruct:
			a.fields(name, embedded)
		}
	}
}

// interfaceMethods adds an interface and its methods. One with a method that is not exported cannot be implemented
// elsewhere.
func (a *api) interfaceMethods(name string, i *types.Interface) {
	kind := "interface"
	for m := range i.Methods() {
		if m.Exported() {
			a.add("type %s interface, %s%s", name, m.Name(), a.signature(m))
		} else {
			kind = "interface, with unexported methods"
		}
	}
	a.add("type %s %s", name, kind)
}

// signature returns the type parameters, the parameters and the results of f.
func (a *api) signature(f *types.Func) string {
	var typeParams []string
	for p := range f.Signature().TypeParams().TypeParams() {
		typeParams = append(typeParams, p.Obj().Name()+" "+a.text(p.Constraint()))
	}
	text := strings.TrimPrefix(a.text(f.Type()), "func")
	if len(typeParams) > 0 {
		text = "[" + strings.Join(typeParams, ", ") + "]" + text
	}
	return text
}

// text returns the name of a type, with the names of other packages and without names of parameters.
func (a *api) text(t types.Type) string {
	if s, ok := t.(*types.Signature); ok {
		t = unnamed(s)
	}
	return types.TypeString(t, func(p *types.Package) string {
		if p == a.pkg {
			return ""
		}
		return p.Name()
	})
}

// unnamed returns s without its type parameters, and without the names of its parameters and results.
func unnamed(s *types.Signature) *types.Signature {
	strip := func(named *types.Tuple) *types.Tuple {
		var all []*types.Var
		for v := range named.Variables() {
			t := v.Type()
			if f, ok := t.(*types.Signature); ok {
				t = unnamed(f)
			}
			all = append(all, types.NewParam(token.NoPos, nil, "", t))
		}
		return types.NewTuple(all...)
	}
	return types.NewSignatureType(nil, nil, nil, strip(s.Params()), strip(s.Results()), s.Variadic())
}
