// Command lab shows, measures and breaks clusters of Understudy masters on this
// machine. See docs/guarantees.md and docs/benchmarks.md.
package main

import (
	"os"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/command"
)

func main() {
	if status, child := command.RunChild(); child {
		os.Exit(status)
	}
	os.Exit(cli.Main(command.Command()))
}
