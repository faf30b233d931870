// Command masterctl looks at a cluster of Understudy masters, changes it, and
// shows what it does. See docs/operations.md.
package main

import (
	"os"

	"github.com/understudy-store/understudy/internal/ctl"
	"github.com/understudy-store/understudy/lab/demo"
)

func main() {
	root := ctl.Command()
	root.AddCommand(demo.Children()...)
	os.Exit(ctl.Main(root))
}
