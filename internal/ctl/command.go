package ctl

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/cli"
)

const about = `Looks at a cluster of Understudy masters and changes it: objects, segments, the
primary.

It handles metadata only. It never reads or writes the bytes of an object.

The cluster is found at --address or --etcd_endpoints. Both are also taken from
the environment (UNDERSTUDY_ADDRESS, UNDERSTUDY_ETCD_ENDPOINTS, and so on for
--cluster-id and --etcd-prefix), unless one of them is given as a flag. In names
of flags '_' and '-' are the same.

It exits with 0 if all went well, 1 if something was refused or failed, and 2 if
the command line is wrong. status, doctor and top have a meaning of their own for 1 and 2:
see their help.`

// Command returns the command of the program.
func Command() *cobra.Command {
	root := &cobra.Command{Use: "masterctl", Short: "Look at a cluster of Understudy masters, and change it", Long: about, Version: cli.Version()}
	f := Program(root)
	add := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, c := range commands {
			c.GroupID = id
		}
		root.AddCommand(commands...)
	}
	add("objects", "Objects:", f.putCommand(), f.putStartCommand(),
		f.finishCommand("put-end KEY", "Make an object that put-start reserved readable", "ended", (*client.Client).PutEnd),
		f.finishCommand("put-revoke KEY", "Give up a reservation of put-start", "revoked", (*client.Client).PutRevoke),
		f.keysListCommand(), f.explainCommand(), f.getCommand(), f.existsCommand(), f.removeCommand(), f.removeRegexCommand(), f.removeAllCommand())
	add("cluster", "Cluster:", f.segmentsCommand(), f.clientsCommand(), f.leasesCommand(), f.rangesCommand(), f.drainCommand(), f.quotaCommand(), f.statusCommand(), f.doctorCommand(), f.sizingCommand(), f.topCommand(), f.digestCommand(), f.handoverCommand(), f.pauseCommand(), f.resumeCommand(), f.startEmptyCommand(), f.refoundCommand(), f.forgetCommand(), f.memberCommand(), f.backupCommand(), f.historyCommand(), f.eventsCommand(), f.certsCommand())
	root.AddCommand(f.versionCommand())
	return root
}

type versionResult struct {
	Version  string `json:"version"`
	Contract uint32 `json:"contract_revision"` // newest one of the gRPC contract that it knows
	Go       string `json:"go"`
}

func (f *Flags) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versionResult{cli.Version(), pb.ContractRevision, runtime.Version()}
			return f.Print(cmd, v, func(w io.Writer) {
				fmt.Fprintf(w, "%s %s, contract revision %d, %s\n", cmd.Root().Name(), v.Version, v.Contract, v.Go)
			})
		},
	}
}
