package drill_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/lab/drill"
)

// TestMain makes this binary a node, or an etcd, when it was started as one.
func TestMain(m *testing.M) {
	if status, child := drill.RunChild(); child {
		os.Exit(status)
	}
	goleak.VerifyTestMain(m)
}

var (
	which   = flag.String("drill", "9", "names or numbers of the drills that TestDrill runs in their short form, separated by ','")
	rounds  = flag.Int("rounds", 1, "how many rounds")
	seed    = flag.Uint64("seed", 1, "their seed")
	forward = flag.Bool("forward", false, "of the drills over Mooncake's protocol, whether nodes forward")
	without = flag.String("break", "", "the mutant that the nodes are")
)

// One round of a drill without a bound on time, as other tests run beside it, or what
// the flags ask for.
func TestDrill(t *testing.T) { drills(t, cluster.Access{}) }

// The same over Mooncake's protocol.
func TestDrillOverMooncake(t *testing.T) {
	drills(t, cluster.Access{Mooncake: true, Forward: *forward})
}

// The primary hangs under a client whose Ping waits, as Mooncake's own does: it loses
// nothing.
func TestHangingPrimaryOverMooncake(t *testing.T) {
	for _, generation := range mooncake.Names() {
		t.Run(generation, func(t *testing.T) {
			t.Parallel() // it waits
			drillsOf(t, "31", cluster.Access{Mooncake: true, Generation: generation})
		})
	}
}

// The primary is killed under clients that speak Mooncake's protocol, and find the
// next one through etcd or through a node that forwards.
func TestKilledPrimaryOverMooncake(t *testing.T) {
	for i, generation := range mooncake.Names() {
		forward := i%2 == 1
		t.Run(fmt.Sprintf("%s, forward: %v", generation, forward), func(t *testing.T) {
			drillsOf(t, "1", cluster.Access{Mooncake: true, Generation: generation, Forward: forward})
		})
	}
}

func drills(t *testing.T, access cluster.Access) { drillsOf(t, *which, access) }

func drillsOf(t *testing.T, names string, access cluster.Access) {
	for name := range strings.SplitSeq(names, ",") {
		t.Run(name, func(t *testing.T) {
			d, err := drill.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			r := drill.Run(t.Context(), d, drill.Options{
				Short: true, Rounds: *rounds, Seed: *seed, Access: access, Break: *without, Progress: func(s string) { t.Log(s) },
				SessionTTL: 4 * time.Second, Failover: 2 * time.Second, EventsTTL: 6 * time.Second, // other tests starve the nodes
			})
			if b, _ := json.MarshalIndent(r, "", "  "); r.OK {
				t.Logf("%s", b)
			} else {
				t.Errorf("got %s, want a drill that is ok", b)
			}
		})
	}
}

// TestGuaranteesListDrills compares the drills of each promise in docs/guarantees.md with
// those that check it.
func TestGuaranteesListDrills(t *testing.T) {
	text, err := os.ReadFile("../../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string][]string) // by promise
	for _, d := range drill.All() {
		for _, p := range d.Promises {
			want[p] = append(want[p], strconv.Itoa(d.Number))
		}
	}
	number := regexp.MustCompile(`\d+`)
	for line := range strings.Lines(string(text)) {
		row := promiseRow.FindStringSubmatch(strings.TrimSpace(line))
		if row == nil || want[row[1]] == nil {
			continue // of what drills do not check, or not one of them alone
		}
		if got := number.FindAllString(row[2], -1); !slices.Equal(got, want[row[1]]) {
			t.Errorf("promise %s in docs/guarantees.md: got the drills %v, want %v", row[1], got, want[row[1]])
		}
		delete(want, row[1])
	}
	for p, drills := range want {
		t.Errorf("promise %s: got no row in docs/guarantees.md, want one with the drills %v", p, drills)
	}
}

// promiseRow has a promise and its drills.
var promiseRow = regexp.MustCompile(`^\| \*\*([A-Z])\*\* \|.*\| ([^|]*) \|$`)
