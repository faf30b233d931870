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
	fset  *token.FileSet
	files []*file
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
	m := &module{fset: token.NewFileSet()}
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
	m.files = append(m.files, &file{
		path:      p,
		pkg:       path.Dir(p),
		test:      strings.HasSuffix(p, "_test.go"),
		generated: ast.IsGenerated(parsed),
		lines:     bytes.Count(src, []byte("\n")),
		ast:       parsed,
	})
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
		in := imported{spec: spec, path: p}
		if rest, ok := strings.CutPrefix(p, modulePath+"/"); ok {
			in.path, in.ours = rest, true
		}
		all = append(all, in)
	}
	return all
}

type imported struct {
	spec *ast.ImportSpec
	path string
	ours bool
}

// matches reports whether a package path is one of the patterns. "x/..." is x
// and all below it, "..." is everything.
func matches(pkg string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		parent, tree := strings.CutSuffix(pattern, "...")
		if !tree {
			return pkg == pattern
		}
		parent = strings.TrimSuffix(parent, "/")
		return parent == "" || pkg == parent || strings.HasPrefix(pkg, parent+"/")
	})
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
