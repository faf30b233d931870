package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mostFiles is how many files a reader may have to open for a walk; 0 is no
// bound.
var mostFiles = map[string]int{"A put": 20, "A renewal": 14, "An eviction": 0, "A removal by pattern": 0, "A takeover": 0}

// step is a line of a walk: a file, and the functions to read there.
var step = regexp.MustCompile("^\\d+\\. `([^`]+\\.go)`: ((?:`[^`]+`(?:, )?)+)")

// TestWalks checks that each file and function that a walk in architecture.md
// names is there, and that walks stay short.
func TestWalks(t *testing.T) {
	text, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for title, most := range mostFiles {
		_, rest, found := strings.Cut(string(text), "### "+title+"\n")
		if !found {
			t.Errorf("architecture.md has no walk %q", title)
			continue
		}
		walk, _, _ := strings.Cut(rest, "\n#")
		files := make(map[string]map[string]bool)
		for line := range strings.Lines(walk) {
			if line[0] < '0' || line[0] > '9' {
				continue
			}
			m := step.FindStringSubmatch(line)
			if m == nil {
				t.Errorf("%s: a step is not \"1. `file.go`: `Function`, ...\": %s", title, line)
				continue
			}
			if files[m[1]] == nil {
				files[m[1]] = functions(t, m[1])
			}
			for name := range strings.SplitSeq(strings.Trim(m[2], "` "), "`, `") {
				if !files[m[1]][name] {
					t.Errorf("%s: %s has no function %s", title, m[1], name)
				}
			}
		}
		if got := len(files); got == 0 || most > 0 && got > most {
			t.Errorf("%s visits %d files, want 1 to %d", title, got, most)
		}
	}
}

// functions returns the functions of a file, those of a type as "Type.Name".
func functions(t *testing.T, path string) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", path), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]bool)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		switch {
		case !ok:
		case f.Recv == nil:
			found[f.Name.Name] = true
		default:
			on := f.Recv.List[0].Type
			if pointer, ok := on.(*ast.StarExpr); ok {
				on = pointer.X
			}
			found[fmt.Sprintf("%v.%s", on, f.Name.Name)] = true
		}
	}
	return found
}
