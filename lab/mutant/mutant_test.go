package mutant_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	for _, name := range mutant.Names() {
		if !slices.Contains(known, name) {
			t.Errorf("patch %s: got no control, want one in drill.Controls or sim.Controls", name)
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

// All patches apply to the source as it is, and what comes of it compiles.
func TestPatchesCompile(t *testing.T) {
	for _, name := range mutant.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			builder, err := mutant.NewBuilder(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = builder.Close() }()
			if err := builder.Compile(t.Context(), name); err != nil {
				t.Error(err)
			}
		})
	}
}

// Patches that are used together must apply together.
func TestPatchesApplyTogether(t *testing.T) {
	if _, err := mutant.Apply(root, "shifted-clocks", "boot-clock"); err != nil {
		t.Error(err)
	}
}
