package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/drill"
	"github.com/understudy-store/understudy/lab/mutant"
)

const aboutDrill = `Breaks clusters on purpose, on this machine, and judges from outside whether they
kept their promises: real processes (etcd, a master, standbys) on free loopback
ports, recorded clients, and a fault in the middle. Nothing stays behind but the
history and the logs of a drill that failed; the report says where they are.

No cluster that is running already is touched.`

func (g *globals) drillCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "drill", Short: "Break clusters of this machine on purpose, and judge what clients saw", Long: aboutDrill}
	cli.Group(cmd, g.drillListCommand(), g.drillRunCommand(), g.drillSoakCommand(), g.drillControlsCommand())
	return cmd
}

func (g *globals) drillListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the drills and the promises that they check",
		Args:  cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.Print(cmd, drill.All(), func(w io.Writer) {
				t := cli.NewTable(w, "No", "Name", "Promises", "What")
				for _, d := range drill.All() {
					t.Row(fmt.Sprint(d.Number), d.Name, strings.Join(d.Promises, " "), d.What)
				}
				t.End()
			})
		},
	}
}

// drillFlags are those of all commands that run drills.
func drillFlags(f *pflag.FlagSet, o *drill.Options) {
	f.Uint64Var(&o.Seed, "seed", 1, "of all that is left to chance")
	f.DurationVar(&o.Duration, "duration", 0, "how long a drill goes on, if it has rounds; 0 for its number of rounds")
	f.DurationVar(&o.Failover, "failover-after", 0, "of the nodes; 0 for 1s")
	f.DurationVar(&o.SessionTTL, "session-ttl", 0, "of the nodes, in whole seconds, at least 2s; 0 for 5s, with --short 2s")
	f.DurationVar(&o.EventsTTL, "events-ttl", 0, "of the journal, in whole seconds; 0 for 60s, with --short 5s")
	f.StringVar(&o.Dir, "dir", "", "where to keep data and logs while a drill runs; none for a temporary folder")
	accessFlags(f, &o.Access)
	f.BoolVar(&o.OwnEtcd, "own-etcd", false, "three nodes that each run a member of etcd; drills that break an etcd beside the nodes, or more than one node, are skipped")
	f.BoolVar(&o.Short, "short", false, "the short form, as in CI")
}

func (g *globals) drillRunCommand() *cobra.Command {
	var o drill.Options
	var all, ci bool
	cmd := &cobra.Command{
		Use:   "run NAME... | --all | --ci",
		Short: "Run drills, by name or number",
		Long: `Runs drills one after the other. Each says what it does, and at the end the outage
as the clients saw it and a verdict on each promise. The same seed makes the same
choices; the machine's timing is its own.

It exits with 1 if a promise was broken, or something else that must hold did not.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := chooseDrills(args, all, ci)
			if err != nil {
				return err
			}
			return g.RunLong(cmd, func(ctx context.Context) error { return g.runDrills(ctx, cmd, list, o) })
		},
	}
	f := cmd.Flags()
	drillFlags(f, &o)
	f.BoolVar(&all, "all", false, "all drills")
	f.BoolVar(&ci, "ci", false, "those that CI runs")
	f.IntVar(&o.Rounds, "rounds", 0, "how often the fault happens; 0 for the drill's own number")
	f.IntVar(&o.Objects, "objects", 0, "where a drill needs many; 0 for 1,000,000, with --short 30,000")
	f.DurationVar(&o.Away, "away", 0, "how long all nodes and etcd stay dead in the drill that kills everything")
	f.DurationVar(&o.Stall, "stall", 0, "how long stalling-etcd stops etcd each time, under full load and for an hour (--duration); 0 for a time by chance")
	f.DurationVar(&o.Every, "every", 0, "how often it does, with --stall; 0 for 10s")
	f.StringVar(&o.From, "from", "", "the commit whose nodes a rolling restart upgrades; needs the source with its git history")
	f.StringVar(&o.Break, "break", "", "the safeguard that is missing in the nodes; needs the source")
	return cmd
}

// chooseDrills returns the drills that the arguments and flags select.
func chooseDrills(names []string, all, ci bool) ([]drill.Drill, error) {
	switch {
	case (all || ci) && len(names) > 0, all && ci:
		return nil, cli.Misusef("give names, --all or --ci")
	case !all && !ci && len(names) == 0:
		return nil, cli.Misusef("which drills? Give names or numbers, or --all; \"lab drill list\" shows them")
	}
	if all || ci {
		return slices.DeleteFunc(drill.All(), func(d drill.Drill) bool { return ci && !d.CI }), nil
	}
	var list []drill.Drill
	for _, name := range names {
		d, err := drill.Find(name)
		if err != nil {
			return nil, cli.Misuse(err)
		}
		list = append(list, d)
	}
	return list, nil
}

// runDrills runs drills and prints the result of one, or a report of several.
func (g *globals) runDrills(ctx context.Context, cmd *cobra.Command, list []drill.Drill, o drill.Options) error {
	o.Access.Mooncake, o.Access.Generation = g.Mooncake, g.Generation
	if err := o.Check(); err != nil {
		return cli.Misuse(err)
	}
	o.Progress = func(text string) { cmd.PrintErrln("  " + text) }
	var results []drill.Result
	for _, d := range list {
		if ctx.Err() != nil {
			break
		}
		cmd.PrintErrf("drill %d, %s: %s\n", d.Number, d.Name, d.What)
		results = append(results, drill.Run(ctx, d, o))
	}
	report := drill.Summarize(o.Seed, results)
	report.OK = report.OK && len(results) == len(list)
	var result any = report
	if len(list) == 1 && len(results) == 1 {
		result = results[0]
	}
	if err := g.Print(cmd, result, func(w io.Writer) { drillReport(w, &report) }); err != nil {
		return err
	}
	return drillsEnd(ctx, report.OK)
}

var errDrillFailed = errors.New("a drill failed; the report says which one, and where its history and logs are")

func drillsEnd(ctx context.Context, ok bool) error {
	switch {
	case ok:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return errDrillFailed
	}
}

func (g *globals) drillSoakCommand() *cobra.Command {
	var o drill.Options
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Do random things to clusters until stopped, or until a promise is broken",
		Args:  cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.RunLong(cmd, func(ctx context.Context) error { return g.runDrills(ctx, cmd, []drill.Drill{drill.Soak()}, o) })
		},
	}
	drillFlags(cmd.Flags(), &o)
	return cmd
}

func (g *globals) drillControlsCommand() *cobra.Command {
	var o drill.Options
	cmd := &cobra.Command{
		Use:   "controls [SAFEGUARD...]",
		Short: "Leave out one safeguard after the other, and demand that its drill notices",
		Long: `Builds nodes in which one safeguard is missing, and drills them: a drill that
cannot fail proves nothing. All safeguards that drills are for, or those named.

It needs the source and a Go toolchain: run it in a folder of the source.`,
		RunE: func(cmd *cobra.Command, names []string) error {
			list, err := chooseControls(names)
			if err != nil {
				return err
			}
			return g.RunLong(cmd, func(ctx context.Context) error { return g.runControls(ctx, cmd, list, o) })
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&o.Seed, "seed", 1, "of all that is left to chance")
	f.StringVar(&o.Dir, "dir", "", "where to keep data and logs while a drill runs; none for a temporary folder")
	return cmd
}

// chooseControls returns the controls of some safeguards, by default all.
func chooseControls(names []string) ([]drill.Control, error) {
	all := drill.Controls()
	for _, name := range names {
		if !slices.ContainsFunc(all, func(c drill.Control) bool { return c.Break == name }) {
			return nil, cli.Misusef("no drill is for a safeguard %q; docs/guarantees.md lists them", name)
		}
	}
	if len(names) == 0 {
		return all, nil
	}
	return slices.DeleteFunc(all, func(c drill.Control) bool { return !slices.Contains(names, c.Break) }), nil
}

func (g *globals) runControls(ctx context.Context, cmd *cobra.Command, controls []drill.Control, o drill.Options) (err error) {
	o.Progress = func(text string) { cmd.PrintErrln("  " + text) }
	if o.Mutants, err = mutant.NewBuilder(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Mutants.Close()) }()
	list, ok := caught(ctx, cmd, controls, o)
	err = g.Print(cmd, list, func(w io.Writer) {
		t := cli.NewTable(w, "", "Without", "Drill", "Seconds", "Violations")
		for _, c := range list {
			t.Row(map[bool]string{true: "noticed", false: "MISSED"}[c.OK], c.Break, c.Drill, fmt.Sprintf("%.0f", c.Result.Seconds), violations(c.Result.Violations))
		}
		t.End()
		for i := range list {
			if !list[i].OK {
				drillFindings(w, &list[i].Result)
			}
		}
	})
	if err != nil {
		return err
	}
	return drillsEnd(ctx, ok)
}

// caught runs one control after the other, and reports whether all were noticed. If the
// context ends, it leaves out the controls that have not ended.
func caught(ctx context.Context, cmd *cobra.Command, controls []drill.Control, o drill.Options) (list []drill.Caught, ok bool) {
	ok = true
	for _, c := range controls {
		cmd.PrintErrf("without %s: %s\n", c.Break, c.Drill)
		caught := drill.RunControl(ctx, c, o)
		if ctx.Err() != nil && !caught.OK {
			return list, false
		}
		list, ok = append(list, caught), ok && caught.OK
	}
	return list, ok
}

func violations(count map[string]int) string {
	var list []string
	for _, letter := range slices.Sorted(maps.Keys(count)) {
		if count[letter] > 0 {
			list = append(list, fmt.Sprintf("%s %d", letter, count[letter]))
		}
	}
	return cli.Or(strings.Join(list, ", "))
}

func drillReport(w io.Writer, r *drill.Report) {
	fmt.Fprintf(w, "\nSeed %d\n", r.Seed)
	t := cli.NewTable(w, "", "No", "Drill", "Rounds", "Outage p50", "p99", "max ms", "Promises", "Calls", "Time")
	for i := range r.Drills {
		d := &r.Drills[i]
		t.Row(outcome(d), fmt.Sprint(d.Number), d.Name, cli.Count(d.Rounds), cli.Count(d.Outage.P50), cli.Count(d.Outage.P99), cli.Count(d.Outage.Max),
			verdicts(d.Verdicts), cli.Count(d.Counts["calls"]), time.Duration(d.Seconds*float64(time.Second)).Round(time.Second).String())
	}
	t.End()
	for i := range r.Drills {
		if d := &r.Drills[i]; d.Counts["rounds_raised"] > 0 {
			fmt.Fprintf(w, "%s: %s rounds in which slow commits had raised the failover time are held to no bound\n", d.Name, cli.Count(d.Counts["rounds_raised"]))
		}
	}
	for i := range r.Drills {
		drillFindings(w, &r.Drills[i])
	}
	fmt.Fprintln(w, "\n"+conclusion(r))
}

func outcome(d *drill.Result) string {
	switch {
	case d.Skipped != "":
		return "skipped"
	case d.OK:
		return "ok"
	case d.Stopped:
		return "stopped"
	default:
		return "FAILED"
	}
}

func conclusion(r *drill.Report) string {
	count := make(map[string]int)
	for i := range r.Drills {
		count[outcome(&r.Drills[i])]++
	}
	switch {
	case count["FAILED"] > 0:
		return "A DRILL FAILED."
	case !r.OK && count["ok"] == 0:
		return "Stopped before the first verdict."
	case !r.OK:
		return "Stopped before the end. What was judged by then was kept."
	case count["ok"] == 0:
		return "Nothing was checked."
	case count["skipped"] > 0:
		return fmt.Sprintf("All promises were kept, of the %d drills that could run here.", count["ok"])
	default:
		return "All promises were kept."
	}
}

// verdicts formats the promises of a drill, with the verdict of those that were not kept.
func verdicts(list map[string]string) string {
	var texts []string
	for _, letter := range slices.Sorted(maps.Keys(list)) {
		if v := list[letter]; v != "kept" {
			letter += " " + v
		}
		texts = append(texts, letter)
	}
	return strings.Join(texts, ", ")
}

// drillFindings prints why a drill failed, or was skipped.
func drillFindings(w io.Writer, d *drill.Result) {
	if d.OK && d.Skipped == "" {
		return
	}
	fmt.Fprintf(w, "\n%s\n", d.Name)
	for _, text := range []string{d.Skipped, d.Error} {
		if text != "" {
			fmt.Fprintln(w, "  "+text)
		}
	}
	if v := violations(d.Violations); v != "-" {
		fmt.Fprintln(w, "  violations: "+v)
	}
	for _, c := range d.Checks {
		if !c.OK {
			fmt.Fprintf(w, "  not so: %s: %s\n", c.Name, c.Text)
		}
	}
	for _, x := range d.Examples {
		fmt.Fprintln(w, "  for example: "+strings.ReplaceAll(x, "\n", "\n    "))
	}
	if d.Folder != "" {
		fmt.Fprintln(w, "  history and logs: "+d.Folder)
	}
}
