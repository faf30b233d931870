// Command master runs a node of an Understudy cluster. See docs/operations.md.
package main

import (
	"os"

	"github.com/understudy-store/understudy/internal/app"
	"github.com/understudy-store/understudy/internal/config"
)

func main() { os.Exit(app.Main(app.Command("master", config.Primary), os.Args[1:])) }
