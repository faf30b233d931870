//go:build !drills

package ctl

import "testing"

// A drill that cannot run in a build has checked nothing. With the tag drills
// all of them can.
func TestSkippedDrill(t *testing.T) {
	run(t, "drill", "run", "wall-clocks").want(t, exitOK, "skipped", "Nothing was checked.")
}
