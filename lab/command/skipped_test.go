//go:build !drills

package command

import (
	"testing"

	"github.com/understudy-store/understudy/internal/cli"
)

// A drill that cannot run in a build has checked nothing. With the tag drills
// all of them can.
func TestSkippedDrill(t *testing.T) {
	run(t, "drill", "run", "wall-clocks").Want(t, cli.StatusOK, "skipped", "Nothing was checked.")
}
