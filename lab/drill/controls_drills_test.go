//go:build drills

package drill_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/understudy-store/understudy/internal/safeguard"
	"github.com/understudy-store/understudy/lab/drill"
)

// Each drill notices when a safeguard is missing that it is for.
func TestControls(t *testing.T) {
	for _, c := range drill.Controls() {
		t.Run(c.Drill+"/"+string(c.Break), func(t *testing.T) {
			caught := drill.RunControl(t.Context(), c, drill.Options{Seed: *seed, Progress: func(s string) { t.Log(s) }})
			b, _ := json.MarshalIndent(caught, "", "  ")
			if t.Logf("%s", b); !caught.OK {
				t.Errorf("%s noticed nothing within %v", c.Drill, drill.ControlLimit)
			}
		})
	}
}

func TestEveryDrillAndSafeguardHasAControl(t *testing.T) {
	for _, d := range drill.All() {
		if !slices.ContainsFunc(drill.Controls(), func(c drill.Control) bool { return c.Drill == d.Name }) {
			t.Errorf("drill %s has none", d.Name)
		}
	}
	for _, name := range safeguard.All() {
		if !slices.ContainsFunc(drill.Controls(), func(c drill.Control) bool { return c.Break == name }) {
			t.Errorf("safeguard %s has none", name)
		}
	}
}
