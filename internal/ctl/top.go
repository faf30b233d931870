package ctl

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/internal/clock"
)

type topResult struct {
	Status  statusResult `json:"status"`
	NodeID  string       `json:"node_id"` // whose figures these are
	Seconds float64      `json:"seconds"` // over which the rates are taken; 0 for the first time
	// A second, each: what the primary did.
	Calls     float64 `json:"calls_per_s"`
	Puts      float64 `json:"puts_per_s"`
	Reads     float64 `json:"reads_per_s"`
	HitRate   float64 `json:"hit_rate"`            // percent of the keys that were asked for; 0 if none was
	Deletes   float64 `json:"delete_events_per_s"` // each may remove many objects
	Evictions float64 `json:"evictions_per_s"`
	Renewals  float64 `json:"renewals_per_s"`
	Commits   float64 `json:"commits_per_s"`
	CommitMS  float64 `json:"commit_ms"` // on average
	Waiting   float64 `json:"submissions_waiting"`
	Clients   float64 `json:"clients"`

	asked, commits bool // whether there is a hit rate, and a commit's time
}

// rates are the counters that are shown as rates; the counters of one row are added up.
var rates = []struct {
	names []string
	to    func(*topResult) *float64
}{
	{[]string{"master_put_start_requests_total", "master_batch_put_start_items_total"}, func(r *topResult) *float64 { return &r.Puts }},
	{[]string{"total_get_nums_"}, func(r *topResult) *float64 { return &r.Reads }},
	{[]string{"understudy_delete_events_total"}, func(r *topResult) *float64 { return &r.Deletes }},
	{[]string{"master_evicted_key_count"}, func(r *topResult) *float64 { return &r.Evictions }},
	{[]string{"understudy_renewals_committed_total"}, func(r *topResult) *float64 { return &r.Renewals }},
	{[]string{"understudy_commit_duration_seconds_count"}, func(r *topResult) *float64 { return &r.Commits }},
}

// A watcher has the metrics of the last round.
type watcher struct {
	node string
	at   time.Duration // by the clock
	seen scrape
}

func (f *Flags) topCommand() *cobra.Command {
	var interval time.Duration
	var rounds uint
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch what the primary does: calls, puts, reads, evictions and commits a second",
		Long: `Prints, every --interval until Ctrl-C, how the nodes are and what the primary does a
second. The first figures are those since its start. With --count or --timeout it exits as
status does.`,
		Args: cli.NoArguments,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		w, now := &watcher{}, clock.Boot()
		return f.Repeat(cmd, interval, rounds, func(ctx context.Context) error {
			all, err := f.survey(ctx)
			defer all.close()
			if err != nil {
				return noneServes(err)
			}
			result := &topResult{}
			if primary := all.primary(); primary != nil {
				figures, err := primary.scrape(ctx)
				if err != nil {
					return err
				}
				result = w.compare(primary.id, now(), figures)
			}
			result.Status = statusOf(f.clusterID, all)
			if err := f.Print(cmd, result, func(out io.Writer) { result.print(out) }); err != nil {
				return err
			}
			return result.Status.verdict(nil)
		})
	}
	bindRepeat(cmd, &interval, &rounds)
	return cmd
}

func bindRepeat(cmd *cobra.Command, interval *time.Duration, rounds *uint) {
	cmd.Flags().DurationVar(interval, "interval", 2*time.Second, "how often it prints")
	cmd.Flags().UintVar(rounds, "count", 0, "how many times it prints; 0 for until Ctrl-C")
}

// compare returns what a node did since the last round. If that was of another node or
// process, the result covers the time since the node's start and has no rates.
func (w *watcher) compare(id string, at time.Duration, figures scrape) *topResult {
	r := &topResult{NodeID: id, Waiting: figures.sum("understudy_queue_submissions"), Clients: figures.sum("master_active_clients")}
	before, seconds := w.seen, (at - w.at).Seconds()
	const commits = "understudy_commit_duration_seconds"
	if w.node != id || figures.sum(commits+"_count") < before.sum(commits+"_count") { // another node, or a restarted one
		before, seconds = nil, 0
	}
	*w = watcher{id, at, figures}
	r.Seconds = seconds
	since := func(names ...string) float64 { return figures.sum(names...) - before.sum(names...) }
	if asked := since("total_get_nums_", "understudy_exist_misses_total"); asked > 0 {
		r.asked, r.HitRate = true, 100*since("valid_get_nums_")/asked
	}
	if n := since(commits + "_count"); n > 0 {
		r.commits, r.CommitMS = true, 1000*since(commits+"_sum")/n
	}
	if seconds <= 0 {
		return r // there is no rate yet
	}
	for _, rate := range rates {
		*rate.to(r) = since(rate.names...) / seconds
	}
	for series := range figures {
		if strings.HasPrefix(series, "master_") && strings.HasSuffix(series, "_requests_total") {
			r.Calls += since(series) / seconds
		}
	}
	return r
}

func (r *topResult) print(w io.Writer) {
	rate := func(n float64) string {
		if r.Seconds <= 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f/s", n)
	}
	known := func(known bool, format string, n float64) string {
		if !known {
			return "-"
		}
		return fmt.Sprintf(format, n)
	}
	if r.Status.Leader == nil {
		statusTable(w, &r.Status)
		return
	}
	fmt.Fprintf(w, "%s, term %d, %s\n\n", cli.Printable(r.NodeID), r.Status.Leader.Term, cli.Things(int(r.Clients), "client"))
	t := cli.NewTable(w, "CALLS", "PUTS", "READS", "HIT RATE", "DELETE EVENTS", "EVICTED", "RENEWALS", "COMMITS", "A COMMIT", "WAITING")
	t.Row(rate(r.Calls), rate(r.Puts), rate(r.Reads), known(r.asked, "%.1f %%", r.HitRate), rate(r.Deletes), rate(r.Evictions), rate(r.Renewals), rate(r.Commits),
		known(r.commits, "%.1f ms", r.CommitMS), fmt.Sprintf("%.0f", r.Waiting))
	t.End()
	fmt.Fprintln(w)
	statusTable(w, &r.Status)
}
