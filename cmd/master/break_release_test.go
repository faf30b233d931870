//go:build !drills

package main

import (
	"testing"

	"github.com/understudy-store/understudy/internal/app"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/safeguard"
)

func TestReleaseKeepsItsSafeguards(t *testing.T) {
	for _, role := range []config.Role{config.Primary, config.Standby} {
		if f := app.Command("node", role).Flags().Lookup("break"); f != nil {
			t.Errorf("a release has the flag --%s", f.Name)
		}
	}
	for _, name := range safeguard.All() {
		if safeguard.Off(name) {
			t.Errorf("%s is off", name)
		}
	}
}
