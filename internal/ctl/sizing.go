package ctl

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/internal/cli"
)

// A load is the load that etcd must carry.
type load struct {
	puts     float64 // a second
	batch    uint32  // puts in one call
	keyBytes uint32
	nodes    uint32        // nodes that follow the journal
	commit   time.Duration // how long a commit takes
	failover time.Duration // --failover-after
	maxBytes uint64        // --journal-max-bytes
}

// A sizingResult is what `masterctl sizing` prints: the resources that etcd needs for a load,
// by the formulas of docs/sizing.md, which says how they were measured.
type sizingResult struct {
	Commits      float64 `json:"etcd_writes_per_s"`           // at most
	MostCommits  float64 `json:"etcd_writes_per_s_bound"`     // commits run one at a time
	IOPS         float64 `json:"disk_operations_per_s"`       // of each member
	JournalBytes float64 `json:"journal_bytes_per_s"`         //
	DiskBytes    float64 `json:"disk_bytes_per_s"`            // of each member
	WatchBytes   float64 `json:"network_bytes_per_s"`         // to all nodes, from their members
	Journal      uint64  `json:"journal_bytes"`               // in etcd at once
	Quota        uint64  `json:"quota_bytes"`                 // --quota-backend-bytes, or --etcd-quota-bytes
	Capped       bool    `json:"journal_is_capped,omitempty"` // --journal-max-bytes is reached
}

func (f *Flags) sizingCommand() *cobra.Command {
	l := load{}
	cmd := &cobra.Command{
		Use:   "sizing --puts N",
		Short: "Calculate what etcd needs for a load: writes, bytes, quota",
		Long: `Calculates what etcd needs for a load, by the formulas of docs/sizing.md, which were
measured on small machines: a place to start, and no promise. It asks no node. The
figures are upper bounds: callers that wait at the same time share a write.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := l.check(cmd.Flags().Changed("puts")); err != nil {
				return err
			}
			r := l.size()
			return f.Print(cmd, r, func(w io.Writer) { r.print(w, l) })
		},
	}
	flags := cmd.Flags()
	flags.Float64Var(&l.puts, "puts", 0, "objects that are put a second; 0 for an idle cluster")
	flags.Uint32Var(&l.batch, "batch", 1, "objects in one call, from 1 to 10000")
	flags.Uint32Var(&l.keyBytes, "key-bytes", 64, "length of a key, after compression, from 1 to 65536")
	flags.Uint32Var(&l.nodes, "nodes", 3, "masters and standbys, from 1 to 64")
	flags.DurationVar(&l.commit, "commit", 5*time.Millisecond, "how long a commit takes, from 100µs to 1s: understudy_commit_duration_seconds")
	flags.DurationVar(&l.failover, "failover-after", time.Second, "that setting of the nodes, from 200ms")
	l.maxBytes = 512 << 20
	cli.SizeVar(flags, &l.maxBytes, "journal-max-bytes", "that setting of the nodes, a `size` (default 512MiB)")
	return cmd
}

func (l *load) check(given bool) error {
	switch {
	case !given:
		return cli.Misusef("--puts is missing: how many objects are put a second? 0 is an idle cluster")
	case !(l.puts >= 0 && l.puts <= 1e9):
		return cli.Misusef("--puts is %v: it must be from 0 to 1e9", l.puts)
	case l.batch < 1 || l.batch > 10_000:
		return cli.Misusef("--batch is %d: it must be from 1 to 10000", l.batch)
	case l.keyBytes < 1 || l.keyBytes > 65_536:
		return cli.Misusef("--key-bytes is %d: it must be from 1 to 65536", l.keyBytes)
	case l.nodes < 1 || l.nodes > maxNodes:
		return cli.Misusef("--nodes is %d: it must be from 1 to %d", l.nodes, maxNodes)
	case l.commit < 100*time.Microsecond || l.commit > time.Second:
		return cli.Misusef("--commit is %v: it must be from 100µs to 1s", l.commit)
	case l.failover < 200*time.Millisecond:
		return cli.Misusef("--failover-after is %v: it must be at least 200ms", l.failover)
	}
	return nil
}

// size applies the formulas of docs/sizing.md.
func (l *load) size() sizingResult {
	const (
		renewals               = 4              // commits a second, whatever their number
		beatsPerWindow, window = 4, 0.6         // an idle primary commits every quarter of 3/5 of the failover time
		perPut, perCall        = 20, 45         // journal bytes of a put besides its key, and of a call
		diskPerCommit          = 8 << 10        // bytes
		diskPerByte            = 2.3            // of the journal
		kept                   = 90             // seconds that the journal is kept: --events-ttl, and a compaction
		perJournal, spare      = 2.5, 256 << 20 // quota
		gib                    = 1 << 30
		leastQuota             = 2 * gib
	)
	r := sizingResult{MostCommits: 1 / l.commit.Seconds()}
	beats := beatsPerWindow / (window * l.failover.Seconds())
	calls := 2 * l.puts / float64(l.batch) // PutStart and PutEnd
	r.Commits = min(max(beats, calls)+renewals, r.MostCommits)
	r.IOPS = 2 * r.Commits
	r.JournalBytes = l.puts * (float64(l.keyBytes) + perPut + perCall/float64(l.batch))
	r.DiskBytes = diskPerCommit*r.Commits + diskPerByte*r.JournalBytes
	r.WatchBytes = r.JournalBytes * float64(l.nodes)
	r.Journal = uint64(min(kept*r.JournalBytes, float64(l.maxBytes)))
	r.Capped = kept*r.JournalBytes > float64(l.maxBytes)
	quota := max(leastQuota, perJournal*float64(r.Journal)+spare, perJournal*float64(l.maxBytes))
	r.Quota = uint64(math.Ceil(quota/gib)) * gib
	return r
}

func (r *sizingResult) print(w io.Writer, l load) {
	const most = 8 << 30
	rate := func(bytes float64) string { return cli.SizeText(uint64(bytes)) + "/s" }
	t := cli.NewTable(w, "ETCD NEEDS", "", "")
	t.Row("writes", fmt.Sprintf("%.0f/s", math.Ceil(r.Commits)), fmt.Sprintf("at most; a commit of %v bounds them to %.0f/s", l.commit, r.MostCommits))
	t.Row("disk operations", fmt.Sprintf("%.0f/s", math.Ceil(r.IOPS)), "of each member")
	t.Row("journal", rate(r.JournalBytes), "of puts and their ends")
	t.Row("disk", rate(r.DiskBytes), "written by each member")
	t.Row("network", rate(r.WatchBytes), "to "+cli.Things(int(l.nodes), "node"))
	kept := "kept at once"
	if r.Capped {
		kept += ": --journal-max-bytes, so a standby that is away for long loads a snapshot"
	}
	t.Row("", cli.SizeText(r.Journal), kept)
	t.Row("quota", cli.SizeText(r.Quota), "--quota-backend-bytes, or --etcd-quota-bytes of nodes with an etcd of theirs")
	t.End()
	if r.Quota > most {
		fmt.Fprintf(w, "\n%s: etcd advises against more than %s. Lower --journal-max-bytes.\n", cli.Warn("warning"), cli.SizeText(most))
	}
	if calls := 2 * l.puts / float64(l.batch); calls > r.MostCommits {
		fmt.Fprintf(w, "\nnote: %.0f calls a second share at most %.0f commits, so at least %.0f callers must wait at once; batches need fewer.\n",
			calls, r.MostCommits, math.Ceil(calls/r.MostCommits))
	}
}
