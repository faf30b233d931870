package ctl

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/cli"
)

// versionResult is what `masterctl version` prints.
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
