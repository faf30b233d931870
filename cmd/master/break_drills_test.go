//go:build drills

package main

import (
	"testing"

	"github.com/understudy-store/understudy/internal/app"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/safeguard"
)

func TestDrillsCanTakeSafeguardsAway(t *testing.T) {
	flags := app.Command("node", config.Primary).Flags()
	if err := flags.Set("break", "nonsense"); err == nil {
		t.Error("there is a safeguard called nonsense")
	}
	for _, name := range safeguard.All() {
		if safeguard.Off(name) {
			t.Errorf("%s is off before it is taken away", name)
		}
		if err := flags.Set("break", string(name)); err != nil || !safeguard.Off(name) {
			t.Errorf("%s is not off: %v", name, err)
		}
	}
}
