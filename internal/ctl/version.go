package ctl

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/daemon"
)

// versionResult is what `masterctl version` prints.
type versionResult struct {
	Version  string `json:"version"`
	Contract uint32 `json:"contract_revision"` // newest one of the gRPC contract that it knows
	Go       string `json:"go"`
}

func (g *globals) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versionResult{daemon.Version(), pb.ContractRevision, runtime.Version()}
			return g.print(cmd, v, func(w io.Writer) {
				fmt.Fprintf(w, "masterctl %s, contract revision %d, %s\n", v.Version, v.Contract, v.Go)
			})
		},
	}
}
