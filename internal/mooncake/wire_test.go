package mooncake_test

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/internal/mooncake"
)

// A dumped function is one line group of a dump of the original.
type dumped struct {
	id                   string
	args, result         string // literals, in hexadecimal; empty for no arguments
	argsHash, resultHash string
}

// readDump reads what a release of the original says of its own types.
func readDump(t *testing.T, release string) map[string]*dumped {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "wire", "mooncake-"+release+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	functions := make(map[string]*dumped)
	var at *dumped
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Split(lines.Text(), "\t")
		switch strings.TrimSpace(fields[0]) {
		case "F":
			at = &dumped{id: fields[3]}
			functions[fields[1]] = at
		case "A":
			at.argsHash, at.args = fields[1], fields[2]
		case "R":
			at.resultHash, at.result = fields[1], fields[2]
		default:
			t.Fatalf("the dump of a release: got the line %q, want one that begins with F, A or R", lines.Text())
		}
	}
	return functions
}

var releases = map[string]string{"head": "head", "v0.3.12": "v0.3.12.post1", "v0.3.11": "v0.3.11.post1"}

// Every number, literal and hash is the original's, and no function is missing.
func TestTypesAreTheOriginals(t *testing.T) {
	if len(mooncake.Names()) != len(releases) {
		t.Errorf("%d generations, %d dumps; want as many", len(mooncake.Names()), len(releases))
	}
	for _, name := range mooncake.Names() {
		t.Run(name, func(t *testing.T) {
			g, ok := mooncake.NewGeneration(name)
			if !ok {
				t.Fatalf("NewGeneration(%q): got none, want one for each of Names", name)
			}
			want := readDump(t, releases[name])
			for _, f := range g.Functions() {
				w := want[f.Name]
				if w == nil {
					t.Errorf("function %s: got it here, want only functions of the original's dump", f.Name)
					continue
				}
				delete(want, f.Name)
				if id := fmt.Sprintf("%08x", f.ID); id != w.id {
					t.Errorf("%s has the number %s, want %s", f.Name, id, w.id)
				}
				if got := hex.EncodeToString([]byte(f.Args)); got != w.args {
					t.Errorf("%s takes\n%s, want\n%s", f.Name, got, w.args)
				}
				if got := hex.EncodeToString([]byte(f.Result)); got != w.result {
					t.Errorf("%s returns\n%s, want\n%s", f.Name, got, w.result)
				}
				if hash := fmt.Sprintf("%08x", f.Args.Hash()); w.args != "" && hash != w.argsHash {
					t.Errorf("%s: hash of its arguments %s, want %s", f.Name, hash, w.argsHash)
				}
				if hash := fmt.Sprintf("%08x", f.Result.Hash()); hash != w.resultHash {
					t.Errorf("%s: hash of its result %s, want %s", f.Name, hash, w.resultHash)
				}
			}
			for name := range want {
				t.Errorf("function %s of the original: got none here, want it", name)
			}
		})
	}
}
