package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// modulePath is the prefix of our own import paths.
const modulePath = "github.com/understudy-store/understudy"

// A module is the parsed source of all packages of this module.
type module struct {
	fset    *token.FileSet
	files   []*file
	imports map[string][]imported // of the product, by the package that imports
}

// A file is one Go source file.
type file struct {
	path      string // from the root of the module, for example "journal/writer.go"
	pkg       string // its folder, "." for the root
	test      bool   // compiled into tests only
	generated bool
	lines     int
	ast       *ast.File
}

// load parses all packages below root, other modules excepted.
func load(root fs.FS) (*module, error) {
	m := &module{fset: token.NewFileSet(), imports: make(map[string][]imported)}
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return enter(root, p)
		}
		if path.Ext(p) != ".go" {
			return nil
		}
		return m.add(root, p)
	})
	return m, err
}

// enter returns fs.SkipDir for folders that do not belong to the module, by
// the rules of the go command.
func enter(root fs.FS, dir string) error {
	if dir == "." {
		return nil
	}
	name := path.Base(dir)
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "vendor" {
		return fs.SkipDir
	}
	if _, err := fs.Stat(root, path.Join(dir, "go.mod")); err == nil {
		return fs.SkipDir // a module of its own
	}
	return nil
}

func (m *module) add(root fs.FS, p string) error {
	src, err := fs.ReadFile(root, p)
	if err != nil {
		return err
	}
	parsed, err := parser.ParseFile(m.fset, p, src, parser.ParseComments)
	if err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	f := &file{
		path:      p,
		pkg:       path.Dir(p),
		test:      strings.HasSuffix(p, "_test.go"),
		generated: ast.IsGenerated(parsed),
		lines:     bytes.Count(src, []byte("\n")),
		ast:       parsed,
	}
	m.files = append(m.files, f)
	if !f.test {
		m.imports[f.pkg] = append(m.imports[f.pkg], f.imports()...)
	}
	return nil
}

// line returns the position of a node as "path:line".
func (m *module) line(n ast.Node) string {
	pos := m.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", pos.Filename, pos.Line)
}

// product returns the files that end up in the programs: no tests.
func (m *module) product() []*file {
	return slices.DeleteFunc(slices.Clone(m.files), func(f *file) bool { return f.test })
}

// imports returns what a file imports: our own packages by their folder, with
// ours true, and others by their import path.
func (f *file) imports() []imported {
	var all []imported
	for _, spec := range f.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has checked it
		}
		in := imported{spec: spec, by: f.pkg, path: p}
		if rest, ok := strings.CutPrefix(p, modulePath+"/"); ok {
			in.path, in.ours = rest, true
		}
		all = append(all, in)
	}
	return all
}

type imported struct {
	spec *ast.ImportSpec
	by   string // the package that imports it
	path string
	ours bool
}

// A chain is an import, the import of a package in that one, and so on.
type chain []imported

// String says "a imports b, which imports c".
func (c chain) String() string {
	text := c[0].by
	for i, in := range c {
		if i > 0 {
			text += ", which"
		}
		text += " imports " + in.path
	}
	return text
}

// chains returns the shortest chain to each import that a package has, by itself
// or through packages of ours. It looks for no more behind an import that ends
// the search.
func (m *module) chains(pkg string, ends func(imported) bool) (all []chain) {
	entered := map[string]bool{pkg: true}
	type place struct {
		pkg string
		to  chain
	}
	for next := []place{{pkg: pkg}}; len(next) > 0; next = next[1:] {
		for _, in := range m.imports[next[0].pkg] {
			c := append(slices.Clone(next[0].to), in)
			all = append(all, c)
			if in.ours && !entered[in.path] && !ends(in) {
				entered[in.path] = true
				next = append(next, place{in.path, c})
			}
		}
	}
	return all
}

// matches reports whether a package path is one of the patterns. "x/..." is x
// and all below it, "..." is everything, and "!x" takes x out.
func matches(pkg string, patterns []string) bool {
	matched := func(pattern string) bool {
		parent, tree := strings.CutSuffix(pattern, "...")
		if !tree {
			return pkg == pattern
		}
		parent = strings.TrimSuffix(parent, "/")
		return parent == "" || pkg == parent || strings.HasPrefix(pkg, parent+"/")
	}
	out := slices.ContainsFunc(patterns, func(p string) bool { return strings.HasPrefix(p, "!") && matched(p[1:]) })
	return !out && slices.ContainsFunc(patterns, matched)
}

// uses returns where a file names something of a standard package, such as
// time.Now: as a call, a value or a type.
func (f *file) uses(pkg string, names ...string) []*ast.SelectorExpr {
	local := ""
	for _, in := range f.imports() {
		if in.ours || in.path != pkg {
			continue
		}
		local = path.Base(pkg)
		if in.spec.Name != nil {
			local = in.spec.Name.Name
		}
	}
	if local == "" {
		return nil
	}
	var found []*ast.SelectorExpr
	ast.Inspect(f.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		// Obj is set for a variable that shadows the package.
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == local && x.Obj == nil && slices.Contains(names, sel.Sel.Name) {
			found = append(found, sel)
		}
		return true
	})
	return found
}
