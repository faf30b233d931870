package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A length is how many files a reader may have to open for a walk, and how many lines its
// functions may have together; 0 is no bound.
type length struct{ files, lines int }

var longest = map[string]length{"A put": {20, 1000}, "A renewal": {14, 0}, "An eviction": {}, "A removal by pattern": {}, "A takeover": {}}

// step is a line of a walk: a file, and the functions to read there.
var step = regexp.MustCompile("^\\d+\\. `([^`]+\\.go)`: ((?:`[^`]+`(?:, )?)+)")

// published is what architecture.md says of the length of a walk.
var published = regexp.MustCompile(`(\d+ files, \d+ functions), (\d+) lines\.`)

// TestWalks checks that each file and function that a walk in architecture.md
// names is there, that walks stay short, and that their lengths are as published.
func TestWalks(t *testing.T) {
	text, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for title, most := range longest {
		_, rest, found := strings.Cut(string(text), "### "+title+"\n")
		if !found {
			t.Errorf("architecture.md: got no walk %q, want one", title)
			continue
		}
		walk, _, _ := strings.Cut(rest, "\n#")
		files, lines, names := make(map[string]map[string]int), 0, make(map[string]bool)
		for line := range strings.Lines(walk) {
			if line[0] < '0' || line[0] > '9' {
				continue
			}
			m := step.FindStringSubmatch(line)
			if m == nil {
				t.Errorf("%s: got the step %s, want it to begin with \"1. `file.go`: `Function`, ...\"", title, line)
				continue
			}
			if files[m[1]] == nil {
				files[m[1]] = functions(t, m[1])
			}
			for name := range strings.SplitSeq(strings.Trim(m[2], "` "), "`, `") {
				n, found := files[m[1]][name]
				if !found {
					t.Errorf("%s: got the function %s, want one that %s has", title, name, m[1])
				}
				if !names[m[1]+name] { // a reader has read it only once
					lines += n
				}
				names[m[1]+name] = true
			}
		}
		if got := len(files); got == 0 || most.files > 0 && got > most.files {
			t.Errorf("%s visits %d files, want 1 to %d", title, got, most.files)
		}
		if most.lines > 0 && lines > most.lines {
			t.Errorf("%s: its functions have %d lines, want at most %d", title, lines, most.lines)
		}
		if most == (length{}) {
			continue
		}
		opened := fmt.Sprintf("%d files, %d functions", len(files), len(names))
		want := fmt.Sprintf("%s, %d lines.", opened, lines)
		says := published.FindStringSubmatch(walk)
		switch {
		case says == nil:
			t.Errorf("%s: architecture.md does not say its length, want %q", title, want)
		case *update:
			text = []byte(strings.Replace(string(text), walk, strings.Replace(walk, says[0], want, 1), 1))
		case says[1] != opened || !near(says[2], lines):
			t.Errorf("%s: architecture.md says %q, want %q: run go test ./docs -update", title, says[0], want)
		}
	}
	if *update {
		if err := os.WriteFile("architecture.md", text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// near reports whether a published number of lines is about right: not every change of a
// function is one of the documentation.
func near(published string, lines int) bool {
	const most = 25
	said, err := strconv.Atoi(published)
	return err == nil && max(said-lines, lines-said) <= most
}

// functions returns the functions of a file, those of a type as "Type.Name", and how many
// lines each has, from "func" to the closing brace.
func functions(t *testing.T, path string) map[string]int {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, filepath.Join("..", path), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]int)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		lines := fset.Position(f.End()).Line - fset.Position(f.Type.Func).Line + 1
		switch {
		case f.Recv == nil:
			found[f.Name.Name] = lines
		default:
			on := f.Recv.List[0].Type
			if pointer, ok := on.(*ast.StarExpr); ok {
				on = pointer.X
			}
			found[fmt.Sprintf("%v.%s", on, f.Name.Name)] = lines
		}
	}
	return found
}
