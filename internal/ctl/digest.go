package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
)

type digestResult struct {
	Equal    bool               `json:"equal"` // all that answered
	Sequence uint64             `json:"sequence"`
	Nodes    []nodeDigestResult `json:"nodes"`
}

type nodeDigestResult struct {
	NodeID  string `json:"node_id,omitempty"`
	Address string `json:"address"`
	Digest  string `json:"digest,omitempty"`
	Error   string `json:"error,omitempty"`
}

var errDiffer = errors.New("the digests differ: these nodes do not have the same state; restart one that is not the primary, it loads a snapshot then")

func (f *Flags) digestCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "digest",
		Short: "Compare the states of all nodes at one sequence",
		Long: `Asks all nodes for the digest of their state at one sequence of the journal.
Equal digests mean equal states. It exits with 1 if two of them differ; a node that
does not answer is shown as such.`,
		Args: cli.NoArguments,
		RunE: f.withNodes(func(ctx context.Context, cmd *cobra.Command, all nodes) error {
			result, err := all.digests(ctx)
			if err != nil {
				return err
			}
			if err := f.Print(cmd, result, func(w io.Writer) { digestTable(w, &result) }); err != nil {
				return err
			}
			if !result.Equal {
				return errDiffer
			}
			return nil
		}),
	}
}

// digests asks all nodes for the digest at the newest sequence of the primary, or of the
// best node if none is primary.
func (ns nodes) digests(ctx context.Context) (digestResult, error) {
	first := ns.best()
	at, err := first.admin.Digest(ctx, &pb.DigestRequest{})
	if err != nil {
		return digestResult{}, fmt.Errorf("node %s: %w", first.id, readError(err))
	}
	result := digestResult{Equal: true, Sequence: at.GetSequence(), Nodes: make([]nodeDigestResult, len(ns))}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for i, n := range ns {
		r := &result.Nodes[i]
		*r = nodeDigestResult{NodeID: n.id, Address: n.address}
		switch {
		case n == first:
			r.Digest = at.GetDigest()
		case n.status == nil:
			r.Error = rpcerr.Cause(n.address, n.err)
		default:
			wg.Go(func() {
				d, err := n.admin.Digest(ctx, &pb.DigestRequest{Sequence: at.GetSequence()})
				if err != nil {
					r.Error = readError(err).Error()
				}
				r.Digest = d.GetDigest()
			})
		}
	}
	wg.Wait()
	for _, n := range result.Nodes {
		result.Equal = result.Equal && (n.Error != "" || n.Digest == at.GetDigest())
	}
	return result, nil
}

func digestTable(w io.Writer, d *digestResult) {
	t := cli.NewTable(w, "NODE", "ADDRESS", "DIGEST")
	for _, n := range d.Nodes {
		t.Row(cli.Or(n.NodeID), n.Address, n.Digest+n.Error) // one of the two is empty
	}
	t.End()
	verdict := "equal"
	if !d.Equal {
		verdict = "NOT EQUAL"
	}
	fmt.Fprintf(w, "\n%s at sequence %d\n", verdict, d.Sequence)
}
