package system_test

import (
	"go/ast"
	gobuild "go/build"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// Every [Name] and [pkg.Name] of a doc comment names what is there, in the packages of every module, exported or not. Of a
// package of another author only the import is looked up.
func TestDocLinks(t *testing.T) {
	t.Parallel()
	l := &linked{t: t, packages: map[string]*documented{}}
	root := filepath.Join("..", "..")
	links := 0
	err := filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return err
		case d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && dir != root:
			return fs.SkipDir
		}
		if p := l.read(module+filepath.ToSlash(strings.TrimPrefix(dir, root+"/")), dir); p != nil {
			links += l.check(p)
		}
		return nil
	})
	if err != nil || links < 500 {
		t.Errorf("%d links, %v", links, err)
	}
}

// linked has the packages that doc comments name.
type linked struct {
	t        *testing.T
	packages map[string]*documented // by folder
}

// documented is a package with its doc comments.
type documented struct {
	path     string
	parser   *comment.Parser   // knows the package's names; before Go 1.26 without fields
	fields   map[string]bool   // "Type.Field"
	comments map[string]string // by position
}

// has reports whether the package has the name, of a receiver or a struct if recv is not empty.
func (p *documented) has(recv, name string) bool {
	return p.parser.LookupSym(recv, name) || p.fields[recv+"."+name]
}

// addFields adds the fields of a type.
func (p *documented) addFields(spec *ast.TypeSpec) {
	if s, ok := spec.Type.(*ast.StructType); ok {
		for _, field := range s.Fields.List {
			for _, name := range field.Names {
				p.fields[spec.Name.Name+"."+name.Name] = true
			}
		}
	}
}

// read returns the package in a folder, and nil if there is none.
func (l *linked) read(path, dir string) *documented {
	if p, ok := l.packages[dir]; ok {
		return p
	}
	set := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		l.t.Fatal(err)
	}
	var files []*ast.File
	p := &documented{path: path, fields: map[string]bool{}, comments: map[string]string{}}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			l.t.Fatal(err)
		}
		if len(files) > 0 && f.Name.Name != files[0].Name.Name { // a program that is not built, such as a generator
			continue
		}
		files = append(files, f)
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				p.addFields(spec)
			}
			if text := docOf(n); text != nil {
				p.comments[set.Position(text.Pos()).String()] = text.Text()
			}
			return true
		})
	}
	l.packages[dir] = nil
	if len(files) == 0 {
		return nil
	}
	d, err := doc.NewFromFiles(set, files, path, doc.AllDecls)
	if err != nil {
		l.t.Fatal(err)
	}
	p.parser = d.Parser()
	l.packages[dir] = p
	return p
}

// docOf returns the doc comment of a node.
func docOf(n ast.Node) *ast.CommentGroup {
	switch n := n.(type) {
	case *ast.File:
		return n.Doc
	case *ast.GenDecl:
		return n.Doc
	case *ast.FuncDecl:
		return n.Doc
	case *ast.TypeSpec:
		return n.Doc
	case *ast.ValueSpec:
		return n.Doc
	case *ast.Field:
		return n.Doc
	}
	return nil
}

// check returns how many links the doc comments of p have.
func (l *linked) check(p *documented) (n int) {
	own := *p.parser
	for at, text := range p.comments {
		asked := own
		asked.LookupSym = func(recv, name string) bool {
			n++
			if !p.has(recv, name) && name != "" { // "" for []
				l.t.Errorf("%s: [%s] is not there", at, strings.TrimPrefix(recv+"."+name, "."))
			}
			return true
		}
		asked.LookupPackage = func(name string) (path string, ok bool) {
			recv, unexported, _ := strings.Cut("."+name, ".") // not shown as a link, but meant as one
			if i := strings.LastIndex(name, "."); i >= 0 {
				recv, unexported = name[:i], name[i+1:]
			}
			if path, ok = own.LookupPackage(name); !ok && token.IsIdentifier(unexported) && !p.has(recv, unexported) {
				l.t.Errorf("%s: package %s of a link is not imported", at, name)
			}
			return path, ok
		}
		for _, link := range docLinks(asked.Parse(text)) {
			dir, isKnown := folderOf(link.ImportPath)
			if !isKnown || link.ImportPath == p.path || link.Name == "" {
				continue
			}
			n++
			if other := l.read(link.ImportPath, dir); other == nil || !other.has(link.Recv, link.Name) {
				l.t.Errorf("%s: [%s.%s] is not there", at, link.ImportPath, strings.TrimPrefix(link.Recv+"."+link.Name, "."))
			}
		}
	}
	return n
}

// folderOf returns the folder of a package, and whether the package is ours or the standard library's.
func folderOf(path string) (dir string, isKnown bool) {
	if ours, ok := strings.CutPrefix(path, module); ok {
		return filepath.Join("..", "..", filepath.FromSlash(ours)), true
	}
	first, _, _ := strings.Cut(path, "/")
	return filepath.Join(gobuild.Default.GOROOT, "src", filepath.FromSlash(path)), path != "" && !strings.Contains(first, ".")
}

// docLinks returns the links of a doc comment to names.
func docLinks(d *comment.Doc) (links []*comment.DocLink) {
	inText := func(texts []comment.Text) {
		for _, text := range texts {
			if link, ok := text.(*comment.DocLink); ok {
				links = append(links, link)
			}
		}
	}
	var inBlocks func([]comment.Block)
	inBlocks = func(blocks []comment.Block) {
		for _, b := range blocks {
			switch b := b.(type) {
			case *comment.Paragraph:
				inText(b.Text)
			case *comment.Heading:
				inText(b.Text)
			case *comment.List:
				for _, item := range b.Items {
					inBlocks(item.Content)
				}
			}
		}
	}
	inBlocks(d.Content)
	return links
}
