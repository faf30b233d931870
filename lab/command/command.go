// Package command is the command line of the laboratory: the program lab, which
// shows, measures and breaks clusters on this machine.
//
// Each command reads its flags, runs a part of the laboratory, and prints one result
// as masterctl does: as a table for people, or as JSON for programs. The package of
// each part says what a run does and how it is judged.
package command

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/understudy-store/understudy/internal/ctl"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/lab/drill"
)

const about = `Shows on this machine what Understudy does (demo), runs a cluster to try things on
(cluster), breaks it on purpose (drill) and measures it (bench). None of this is for production; masterctl is the program for
operators.

The clusters are processes of their own, started for one command and ended with
it. Only replay talks to a cluster that is running: it is found at --address or
--etcd_endpoints, as masterctl finds it. In names of flags '_' and '-' are the
same.

It exits with 0 if all went well, 1 if something failed or a promise was broken,
and 2 if the command line is wrong.`

// globals are the flags of every command.
type globals struct{ *ctl.Flags }

// Command returns the command of the program.
func Command() *cobra.Command {
	root := &cobra.Command{Use: "lab", Short: "Show, measure and break clusters of Understudy masters on this machine", Long: about}
	g := &globals{ctl.Program(root)}
	root.AddCommand(g.demoCommand(), g.drillCommand(), g.benchCommand(), g.fleetCommand(), g.replayCommand(), g.clusterCommand(), cluster.EtcdCommand("etcd"))
	return root
}

// RunChild runs the program of a child (a node, an etcd, or an attacker) if a command started
// this process as one, and returns its exit status.
func RunChild() (status int, child bool) { return drill.RunChild() }

// accessFlags are those of commands that start a cluster with clients.
func accessFlags(flags *pflag.FlagSet, a *cluster.Access) {
	flags.BoolVar(&a.Forward, "forward", false, "let nodes pass calls on to the primary, and clients know one node alone; with --protocol=mooncake")
	flags.BoolVar(&a.AsOriginal, "as-original", false, "let clients find the primary no sooner than Mooncake's own: after three failed Pings; with --protocol=mooncake")
}
