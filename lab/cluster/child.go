package cluster

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/internal/app"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/promote"
)

// Names of the children's commands.
const (
	etcdCommand    = "__etcd"
	masterCommand  = "__master"
	standbyCommand = "__standby"
)

// RunChild runs what this process was started as, and returns its exit status.
// It reports false if the process is no child of a cluster. A program that starts
// clusters calls it before anything else.
func RunChild() (status int, child bool) {
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

// forgetSettings takes settings of nodes out of a child's environment: a child
// is what its flags say, whatever the shell has set for other clusters.
func forgetSettings() {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, cli.EnvPrefix) {
			_ = os.Unsetenv(name)
		}
	}
}
