package conformance_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/mooncake"
)

// A line is one behaviour of the C++ master.
type line struct {
	number int // of the list of behaviours
	given  string
	run    func(w *world)
	size   uint64             // of the memory, 0 for 1 MiB
	policy eviction.Watermark // zero for the C++ master's defaults
	hosts  bool               // it needs a generation whose clients name their hosts, and groups
	slow   bool               // it waits for loops in real time
	// shown names the tests that show it elsewhere, each with its folder and its name.
	// The comment of each says so: "conformance line 66".
	shown string
	// differs is set if it does not hold here: docs/divergence.md says why, and run, if
	// it is there, shows what holds instead.
	differs bool
}

const lines = 84

// evictionDefaults are the C++ master's.
var evictionDefaults = eviction.Watermark{High: 0.90, Ratio: 0.05, SoftPins: true}

func all() []line { return slices.Concat(puts, removals, leases, segments, upserts, copies, failovers) }

func TestConformance(t *testing.T) {
	for _, l := range all() {
		if l.run == nil {
			continue
		}
		if l.size == 0 {
			l.size = memory
		}
		if l.policy == (eviction.Watermark{}) {
			l.policy = evictionDefaults
		}
		t.Run(strconv.Itoa(l.number)+" "+l.given, func(t *testing.T) {
			for _, front := range append([]string{"service"}, mooncake.Names()...) {
				if g, ok := mooncake.NewGeneration(front); ok && l.hosts && !g.Fields.HostIDs {
					continue
				}
				t.Run(front, func(t *testing.T) {
					if l.slow {
						t.Parallel()
					}
					l.run(newWorld(t, front, l.size, l.policy))
				})
			}
		})
	}
}

// Each line is there once, and says in one way where it stands.
func TestEveryLineIsThere(t *testing.T) {
	seen := make(map[int]bool)
	differences, err := os.ReadFile("../../docs/divergence.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all() {
		if seen[l.number] {
			t.Errorf("line %d: got it twice, want it once", l.number)
		}
		seen[l.number] = true
		if runs, shown := l.run != nil, l.shown != ""; runs && shown || !runs && !shown && !l.differs {
			t.Errorf("line %d: got run %t, shown %q and differs %t; want a test, here or elsewhere, or a difference", l.number, runs, l.shown, l.differs)
		}
		for test := range strings.FieldsSeq(l.shown) {
			if comment, _, ok := declared(t, test); !ok {
				t.Errorf("line %d: got no test %s, want one that exists", l.number, test)
			} else if want := "conformance line " + strconv.Itoa(l.number); !regexp.MustCompile(want + `\b`).MatchString(comment) {
				t.Errorf("line %d: got the comment of %s without it, want %q there", l.number, test, want)
			}
		}
		if listed := strings.Contains(string(differences), "\n| "+strconv.Itoa(l.number)+" |"); listed != l.differs {
			t.Errorf("line %d: got listed in docs/divergence.md %t, want %t", l.number, listed, l.differs)
		}
	}
	for n := 1; n <= lines; n++ {
		if !seen[n] {
			t.Errorf("line %d of %d: got none, want it listed", n, lines)
		}
	}
}

// declared reports whether a folder has a test, "segment/TestFull", with its comment and
// all of its source.
func declared(t *testing.T, test string) (comment, source string, ok bool) {
	t.Helper()
	dir, name := filepath.Split(test)
	files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	declaration := regexp.MustCompile(`(?m)((?:^//.*\n)*)^func ` + name + `\((?s:.*?)^}`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := declaration.FindSubmatch(text); found != nil {
			return strings.ReplaceAll(string(found[1]), "\n// ", " "), string(found[0]), true
		}
	}
	return "", "", false
}
