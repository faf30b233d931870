package ctl

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/internal/cli"
)

// Verdicts of a check.
const (
	fine  = "ok"
	warns = "warn" // it works, but needs attention
	bad   = "bad"  // something does not work, or is about to
	skips = "skip" // it could not be checked from here
)

var coloured = map[string]func(string) string{fine: cli.Good, warns: cli.Warn, bad: cli.Bad, skips: cli.Plain}

// A diagnosis is what `masterctl doctor` prints.
type diagnosis struct {
	ClusterID string    `json:"cluster_id"`
	Serves    bool      `json:"serves"` // a node serves
	Findings  []finding `json:"findings"`
}

type finding struct {
	Check   string `json:"check"`
	Verdict string `json:"verdict"` // ok, warn, bad or skip
	Text    string `json:"text"`
	Help    string `json:"help,omitempty"` // what to do
}

func (f *Flags) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check the cluster and its etcd, and say what to do",
		Long: `Checks the nodes, their settings and state files, memory, and etcd: its version, space,
alarms and latency. It prints a line for each check: ok, warn or bad, and what to do; or skip, and why it could
not be checked from here.

The members of etcd are those of --etcd-endpoints, or else those that the nodes use.

It exits with 0 if all is well, with 1 if something is not though a node serves, and
with 2 if no node serves, or none answers.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.Run(cmd, func(ctx context.Context) error {
				all, err := f.survey(ctx)
				defer all.close()
				if len(all) == 0 {
					return noneServes(err)
				}
				d := f.diagnose(ctx, all)
				if err := f.Print(cmd, d, func(w io.Writer) { d.print(w) }); err != nil {
					return err
				}
				switch unwell := func(x finding) bool { return x.Verdict == warns || x.Verdict == bad }; {
				case !d.Serves:
					return noneServes(err)
				case slices.ContainsFunc(d.Findings, unwell):
					return cli.WithStatus(cli.StatusFailed, nil)
				}
				return nil
			})
		},
	}
}

func (d *diagnosis) print(w io.Writer) {
	t := cli.NewTable(w)
	for _, x := range d.Findings {
		text := x.Text
		if x.Help != "" {
			text += "; " + x.Help
		}
		t.Row(x.Verdict, x.Check, text)
		t.Paint(0, coloured[x.Verdict])
	}
	t.End()
}

func (d *diagnosis) add(check, verdict, help, format string, args ...any) {
	if verdict == fine {
		help = ""
	}
	d.Findings = append(d.Findings, finding{check, verdict, fmt.Sprintf(format, args...), help})
}

func (d *diagnosis) skip(check, why string, args ...any) {
	d.add(check, skips, "", "not checked: "+why, args...)
}

func (f *Flags) diagnose(ctx context.Context, all nodes) *diagnosis {
	d := &diagnosis{ClusterID: f.clusterID, Serves: all.primary() != nil}
	all.tryAdvertised(ctx, f.clusterID)
	d.checkNodes(all)
	if len(all.answering()) == 0 {
		return d
	}
	figures := make([]scrape, len(all))
	failures := make([]error, len(all))
	var wg sync.WaitGroup
	for i, n := range all {
		if n.status != nil && n.status.GetNode().GetHttpAddress() != "" {
			wg.Go(func() { figures[i], failures[i] = n.scrape(ctx) })
		}
	}
	wg.Wait()
	for i, n := range all {
		d.checkNode(n, figures[i], failures[i])
	}
	d.checkWitnesses(ctx, all)
	d.checkMemory(all)
	if all.best().status.GetJournal() == nil {
		return d // without high availability there is neither journal nor etcd
	}
	var limits limits
	for i, n := range all {
		if n == all.primary() && figures[i] != nil {
			d.checkCommits(figures[i])
			limits = limitsOf(figures[i])
		}
	}
	if !f.askEtcd(ctx, d, all, limits) {
		d.etcdByNodes(all, limits)
	}
	return d
}
