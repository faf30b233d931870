// Command masterctl looks at a cluster of Understudy masters and changes it. See
// docs/operations.md.
package main

import (
	"os"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/internal/ctl"
)

func main() { os.Exit(cli.Main(ctl.Command())) }
