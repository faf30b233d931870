package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/cli"
)

// A drainResult is what the commands on drain jobs print, in the words of the HTTP API.
type drainResult struct {
	Job    string `json:"job_id"`
	Status string `json:"status_name"`
	// Of `drain status` only.
	Segments  []string `json:"segments,omitempty"`
	Succeeded uint64   `json:"succeeded_units"`
	Failed    uint64   `json:"failed_units"`
	Blocked   int      `json:"blocked_units"`
	Active    int      `json:"active_units"`
	Bytes     uint64   `json:"migrated_bytes"`
	Text      string   `json:"message,omitempty"`
}

func (f *Flags) drainCommand() *cobra.Command {
	cmd := f.drainStartCommand("drain NAME...", "Move all objects away from segments; look after such jobs")
	begin := cmd.RunE
	cli.Group(cmd,
		f.drainStartCommand("start NAME...", "Begin a drain job, as drain NAME does"), f.drainListCommand(),
		f.drainJobCommand("status JOB", "Print how far a drain job is", http.MethodGet, "/query", ""),
		f.drainJobCommand("cancel JOB", "End a drain job of which no host moves an object just now; its segments take objects again", http.MethodPost, "/cancel", "CANCELED"))
	cmd.RunE, cmd.Args = begin, cli.Arguments(1, -1, "at least one NAME of a segment, or start, list, status or cancel")
	return cmd
}

func (f *Flags) drainStartCommand(use, short string) *cobra.Command {
	var request struct {
		Segments    []string `json:"segments"`
		Targets     []string `json:"target_segments"`
		Concurrency uint32   `json:"max_concurrency"`
	}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Long: `Begins a job that moves all objects away from the segments with these names, and
prints its id. The segments take no new objects from now on. Their hosts and those of
the others must run, since they copy the bytes. The job goes on after a failover.`,
		Args:              cli.Arguments(1, -1, "at least one NAME of a segment"),
		ValidArgsFunction: f.completeSegments,
		RunE: func(cmd *cobra.Command, names []string) error {
			request.Segments = names
			body, err := json.Marshal(request)
			if err != nil {
				return err
			}
			return f.drain(cmd, http.MethodPost, "", body, "CREATED")
		},
	}
	cmd.Flags().StringSliceVar(&request.Targets, "to", []string{}, "`names` of segments to move objects to; none means all others")
	cmd.Flags().Uint32Var(&request.Concurrency, "concurrency", 4, "most objects that are moved at once")
	completeFlag(cmd, "to", f.completeSegments)
	return cmd
}

type drainList struct {
	NodeID string     `json:"node_id"` // who was asked
	Jobs   []drainJob `json:"jobs"`    // oldest first
}

type drainJob struct {
	Job      string   `json:"job_id"`
	Status   string   `json:"status_name"`
	Segments []string `json:"segments"`
	Age      uint64   `json:"age_ms"`
}

func (f *Flags) drainListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Print the drain jobs, also those that have ended",
		Args:  cli.NoArguments,
		RunE: f.withNodes(func(ctx context.Context, cmd *cobra.Command, all nodes) error {
			n := all.best()
			resp, err := n.admin.ListDrainJobs(ctx, &pb.ListDrainJobsRequest{})
			if err != nil {
				return readError(err)
			}
			list := drainList{n.id, []drainJob{}}
			for _, j := range resp.GetJobs() {
				list.Jobs = append(list.Jobs, drainJob{j.GetJobId(), j.GetStatus(), j.GetSegments(), j.GetAgeMs()})
			}
			return f.Print(cmd, list, func(w io.Writer) {
				t := cli.NewTable(w, "JOB", "STATUS", "BEGUN", "SEGMENTS")
				for _, j := range list.Jobs {
					t.Row(j.Job, j.Status, cli.Millis(j.Age).Round(time.Second).String()+" ago", strings.Join(j.Segments, ", "))
				}
				t.End()
			})
		}),
	}
}

// drainJobCommand returns a command on a job that was created before.
func (f *Flags) drainJobCommand(use, short, method, path, status string) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cli.Arguments(1, 1, "the id of one JOB"),

		ValidArgsFunction: f.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.drain(cmd, method, path+"?job_id="+url.QueryEscape(args[0]), nil, status)
		},
	}
}

// drain calls the primary's HTTP API, and prints its answer, with the given status if the
// answer has none.
func (f *Flags) drain(cmd *cobra.Command, method, path string, body []byte, status string) error {
	return f.withNodes(func(ctx context.Context, cmd *cobra.Command, all nodes) error {
		result := drainResult{Status: status}
		if err := all.askPrimary(ctx, "Drain", method, "/api/v1/drain_jobs"+path, body, &result,
			"a segment is drained or being drained already, or the job has ended or moves objects just now"); err != nil {
			return err
		}
		return f.Print(cmd, result, func(w io.Writer) {
			fmt.Fprintf(w, "drain job %s: %s\n", cli.Printable(result.Job), cli.Printable(result.Status))
			if method == http.MethodGet {
				fmt.Fprintf(w, "%s: %s; %s objects moved (%s), %s failed, %d in progress, %d blocked\n", joined(result.Segments), cli.Printable(result.Text),
					cli.Count(result.Succeeded), cli.SizeText(result.Bytes), cli.Count(result.Failed), result.Active, result.Blocked)
				if result.Blocked > 0 {
					fmt.Fprintln(w, "An object is blocked while it is leased, pinned or being written, or while no other segment that takes puts has room for it (masterctl segments).")
				}
			}
		})
	})(cmd, nil)
}
