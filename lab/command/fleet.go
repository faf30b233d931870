package command

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/fleet"
)

const aboutFleet = `Places each object of a large store as the Go client does over several clusters
(client.Clusters, rendezvous hashing), and adds up what each master would hold and
answer. Nothing is started. SPREAD is the largest cluster's objects, HOT READS the busiest
cluster's reads (Zipf, 0.99), and BY TENANT the largest cluster's objects if whole tenants
were placed, each divided by the mean; MOVED is what moves when a cluster is added.
Memory, calls and processors are those of the largest master, by the costs that the
flags give. docs/scale.md has where these come from.`

func (g *globals) fleetCommand() *cobra.Command {
	o := fleet.Defaults()
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Compute how a large store divides over several clusters",
		Long:  aboutFleet,
		Args:  cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Check(); err != nil {
				return cli.Misuse(err)
			}
			r, err := fleet.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			return g.Print(cmd, r, func(w io.Writer) { fleetTable(w, &r) })
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Hosts, "hosts", o.Hosts, "hosts with clients")
	f.IntVar(&o.Objects, "objects", o.Objects, "objects in all clusters")
	f.IntSliceVar(&o.Clusters, "clusters", o.Clusters, "numbers of clusters to compare")
	f.IntVar(&o.Tenants, "tenants", o.Tenants, "tenants, whose sizes follow Zipf's law with exponent 1")
	f.Float64Var(&o.Reads, "reads", o.Reads, "keys that a host reads a second")
	f.Float64Var(&o.Puts, "puts", o.Puts, "objects that a host puts a second")
	f.IntVar(&o.Batch, "batch", o.Batch, "keys of a batch")
	f.Float64Var(&o.ObjectBytes, "object-bytes", o.ObjectBytes, "memory of an object in a master")
	f.Float64Var(&o.CallMicros, "call-us", o.CallMicros, "processor time of a call, in microseconds")
	f.Float64Var(&o.ReadMicros, "read-us", o.ReadMicros, "processor time of a key that is read in a batch")
	f.Float64Var(&o.PutMicros, "put-us", o.PutMicros, "processor time of an object that is put in a batch")
	return cmd
}

func fleetTable(w io.Writer, r *fleet.Report) {
	t := cli.NewTable(w, "CLUSTERS", "OBJECTS LEAST", "MOST", "SPREAD", "HOT READS", "BY TENANT", "MOVED", "GB/MASTER", "CONNECTIONS", "CALLS/s", "PROCESSORS")
	for i := range r.Cases {
		l := &r.Cases[i]
		t.Row(fmt.Sprint(l.Clusters), cli.Count(l.Least), cli.Count(l.Most), fmt.Sprintf("%.4f", l.Spread), fmt.Sprintf("%.3f", l.HotReads),
			fmt.Sprintf("%.2f", l.ByTenant), fmt.Sprintf("%.2f %%", 100*l.Moved), fmt.Sprintf("%.1f", l.GB), cli.Count(l.Connections),
			cli.Count(int64(l.CallsPerS)), fmt.Sprintf("%.2f", l.Processors))
	}
	t.End()
}
