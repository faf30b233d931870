package cluster

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/internal/app"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/promote"
)

const (
	etcdCommand    = "__etcd"
	masterCommand  = "__master"
	standbyCommand = "__standby"
)

// RunChild runs the program of a child if this process is one, and returns its exit status.
// It reports false if the process is no child of a cluster. A program that starts clusters
// must call it before anything else.
func RunChild() (status int, child bool) {
	if len(os.Args) > 1 && os.Args[1] == busyCommand {
		DieWithParent()
		busy()
	}
	for _, c := range []*cobra.Command{
		EtcdCommand(etcdCommand), app.Command(masterCommand, promote.Primary), app.Command(standbyCommand, promote.Standby),
	} {
		if len(os.Args) > 1 && c.Name() == os.Args[1] {
			DieWithParent()
			forgetSettings()
			return app.Main(c, os.Args[2:]), true
		}
	}
	return 0, false
}

// forgetSettings removes settings of nodes from a child's environment, so that only its flags
// count, and not what the shell has set for other clusters.
func forgetSettings() {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, cli.EnvPrefix) {
			_ = os.Unsetenv(name)
		}
	}
}
