package mutant_test

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/understudy-store/understudy/lab/drill"
	"github.com/understudy-store/understudy/lab/mutant"
	"github.com/understudy-store/understudy/lab/sim"
)

// helpers are patches that take nothing away.
var helpers = []string{"shifted-clocks"}

const root = "../.."

func TestEveryPatchHasAControl(t *testing.T) {
	known := slices.Concat(helpers, sim.Controls())
	for _, c := range drill.Controls() {
		known = append(known, c.Break)
	}
	for _, c := range testControls() {
		known = append(known, c.Break)
	}
	for _, name := range mutant.Names() {
		if !slices.Contains(known, name) {
			t.Errorf("patch %s: got no control, want one in drill.Controls, sim.Controls or testControls", name)
		}
	}
	for _, name := range known {
		if !slices.Contains(mutant.Names(), name) {
			t.Errorf("control %s: got no patch, want lab/mutant/patches/%s.patch", name, name)
		}
	}
}

func TestEveryDrillHasAControl(t *testing.T) {
	for _, d := range drill.All() {
		if !slices.ContainsFunc(drill.Controls(), func(c drill.Control) bool { return c.Drill == d.Name }) {
			t.Errorf("drill %s: got no control, want at least one", d.Name)
		}
	}
}

// The tables of docs/guarantees.md list the controls in their order, and what
// each patch says of itself.
func TestGuaranteesListControls(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	var controls, missing []string // as written
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case len(cells) == 4 && strings.HasPrefix(cells[1], "`"):
			controls = append(controls, cells[0]+" "+strings.Trim(cells[1], "`"))
		case len(cells) == 2 && strings.HasPrefix(cells[0], "`") && slices.Contains(mutant.Names(), strings.Trim(cells[0], "`")):
			missing = append(missing, strings.Trim(cells[0], "`")+": "+cells[1])
		}
	}
	var wantControls, wantMissing []string
	for _, c := range drill.Controls() {
		wantControls = append(wantControls, c.Drill+" "+c.Break)
	}
	for _, name := range sim.Controls() {
		wantControls = append(wantControls, "simulation "+name)
	}
	for _, c := range testControls() {
		wantControls = append(wantControls, "`"+c.Package+"` "+c.Break)
	}
	for _, name := range mutant.Names() {
		if slices.Contains(helpers, name) {
			continue
		}
		text, err := mutant.Missing(name)
		if err != nil {
			t.Fatal(err)
		}
		wantMissing = append(wantMissing, name+": "+strings.TrimSuffix(text, "."))
	}
	if diff := difference(controls, wantControls); diff != "" {
		t.Errorf("the table of controls is not as wanted: %s", diff)
	}
	if diff := difference(missing, wantMissing); diff != "" {
		t.Errorf("the table of safeguards is not as wanted: %s", diff)
	}
}

// difference describes the first line in which lists differ.
func difference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		a, b := append(got, make([]string, len(want))...)[i], append(want, make([]string, len(got))...)[i]
		if a != b {
			return fmt.Sprintf("row %d: got %q, want %q", i+1, a, b)
		}
	}
	return ""
}

// All patches apply to the source as it is, and what comes of it compiles: the types of each
// package that a patch changes say so, beside the other packages as they are. So a patch of
// several packages may not change what one of them gives another.
func TestPatchesCompile(t *testing.T) {
	packages := exports(t)
	checkers := sync.Pool{New: func() any { return newChecker(packages) }}
	for _, name := range mutant.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed, err := mutant.Apply(root, name)
			if err != nil {
				t.Fatal(err)
			}
			dirs := make(map[string]bool)
			for file := range changed {
				dirs[path.Dir(file)] = true
			}
			c := checkers.Get().(*checker)
			defer checkers.Put(c)
			for dir := range dirs {
				if err := c.check(dir, changed); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// exports returns the files that describe the types of all packages, by import path.
func exports(t *testing.T) map[string]string {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-C", root, "-deps", "-export", "-f", "{{.ImportPath}}={{.Export}}", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		files[name] = file
	}
	return files
}

// A checker checks the types of one package after the other. It keeps what the others
// export: to read that takes longer than to check a package.
type checker struct {
	files  *token.FileSet
	others types.Importer
}

func newChecker(packages map[string]string) *checker {
	files := token.NewFileSet()
	return &checker{files, importer.ForCompiler(files, "gc", func(name string) (io.ReadCloser, error) { return os.Open(packages[name]) })}
}

// check checks a package of which some files are changed, against the others as they are.
func (c *checker) check(dir string, changed map[string][]byte) error {
	p, err := build.ImportDir(filepath.Join(root, filepath.FromSlash(dir)), 0)
	if err != nil {
		return err
	}
	var parsed []*ast.File
	names := p.GoFiles
	for file := range changed {
		if name := path.Base(file); path.Dir(file) == dir && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		var source any // nil for what is on disk
		if b, ok := changed[path.Join(dir, name)]; ok {
			source = b
		}
		f, err := parser.ParseFile(c.files, filepath.Join(p.Dir, name), source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		parsed = append(parsed, f)
	}
	_, err = (&types.Config{Importer: c.others}).Check(dir, c.files, parsed, nil)
	return err
}

// Patches that are used together must apply together.
func TestPatchesApplyTogether(t *testing.T) {
	if _, err := mutant.Apply(root, "shifted-clocks", "boot-clock"); err != nil {
		t.Error(err)
	}
}
