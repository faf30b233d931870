// Command standby runs a node of an Understudy cluster. See docs/operations.md.
package main

import (
	"os"

	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/daemon"
)

func main() { os.Exit(daemon.Main(daemon.Command("standby", config.Standby))) }
