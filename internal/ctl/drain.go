package ctl

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/errs"
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
	var request struct {
		Segments    []string `json:"segments"`
		Targets     []string `json:"target_segments"`
		Concurrency uint32   `json:"max_concurrency"`
	}
	cmd := &cobra.Command{
		Use:   "drain NAME...",
		Short: "Move all objects away from segments; look after such a job",
		Long: `Begins a job that moves all objects away from the segments with these names, and
prints its id. The segments take no new objects from now on. Their hosts and those of
the others must run, since they copy the bytes. The job goes on after a failover.`,
	}
	cli.Group(cmd,
		f.drainJobCommand("status JOB", "Print how far a drain job is", http.MethodGet, "/query", ""),
		f.drainJobCommand("cancel JOB", "End a drain job that moves nothing just now; its segments take objects again", http.MethodPost, "/cancel", "CANCELED"))
	cmd.Args = cli.Arguments(1, -1, "at least one NAME of a segment, or status or cancel")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		request.Segments = names
		body, err := json.Marshal(request)
		if err != nil {
			return err
		}
		return f.drain(cmd, http.MethodPost, "", body, "CREATED")
	}
	cmd.Flags().StringSliceVar(&request.Targets, "to", []string{}, "`names` of segments to move objects to; none means all others")
	cmd.Flags().Uint32Var(&request.Concurrency, "concurrency", 4, "most objects that are moved at once")
	return cmd
}

// drainJobCommand is a command on a job that was begun before.
func (f *Flags) drainJobCommand(use, short, method, path, status string) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cli.Arguments(1, 1, "the id of one JOB"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.drain(cmd, method, path+"?job_id="+url.QueryEscape(args[0]), nil, status)
		},
	}
}

// drain calls the primary's HTTP API, and prints its answer. It has the given status if
// the answer has none.
func (f *Flags) drain(cmd *cobra.Command, method, path string, body []byte, status string) error {
	return f.withNodes(func(ctx context.Context, cmd *cobra.Command, all nodes) error {
		primary := all.primary()
		if primary == nil {
			return errs.New(errs.NotLeader, "Drain", "no node serves, so none can drain segments")
		}
		result := drainResult{Status: status}
		if err := askHTTP(ctx, method, "http://"+primary.status.GetNode().GetHttpAddress()+"/api/v1/drain_jobs"+path, body, &result); err != nil {
			return err
		}
		return f.Print(cmd, result, func(w io.Writer) {
			fmt.Fprintf(w, "drain job %s: %s\n", result.Job, result.Status)
			if method == http.MethodGet {
				fmt.Fprintf(w, "%s: %s; %s objects moved (%s), %s failed, %d in progress, %d blocked\n", strings.Join(result.Segments, ", "), result.Text,
					cli.Count(result.Succeeded), cli.SizeText(result.Bytes), cli.Count(result.Failed), result.Active, result.Blocked)
			}
		})
	})(cmd, nil)
}

// askHTTP makes a call of Mooncake's HTTP API.
func askHTTP(ctx context.Context, method, target string, body []byte, result any) error {
	const maxAnswer = 4 << 20
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", req.URL.Host)
	if err != nil {
		return errs.Wrap(errs.Unavailable, "Drain", err)
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(0, 0)) })()
	resp, err := exchange(conn, req)
	if err != nil {
		return errs.Wrap(errs.Unresolved, "Drain", err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return errs.Wrap(errs.Unresolved, "Drain", err)
	}
	var failure struct {
		Number  int32  `json:"error_code"`
		Message string `json:"error_message"`
	}
	if err := json.Unmarshal(text, &failure); err != nil {
		return errs.Wrap(errs.Unresolved, "Drain", fmt.Errorf("%s answers %s: %w", target, resp.Status, err))
	}
	kind, known := errs.FromNumber(failure.Number)
	switch {
	case failure.Number == 0:
		return json.Unmarshal(text, result)
	case !known || resp.StatusCode == http.StatusConflict: // the advice on that kind would be about nodes
		return fmt.Errorf("%s (%d): a segment is drained or being drained already, or the job has ended or moves objects just now", failure.Message, failure.Number)
	case failure.Message == kind.String():
		return errs.New(kind, "Drain", "")
	}
	return errs.New(kind, "Drain", "%s", failure.Message)
}

// exchange makes one request on a connection. http.Client would add a megabyte of
// HTTP/2, proxies and cookies to the program.
func exchange(conn net.Conn, req *http.Request) (*http.Response, error) {
	req.Close = true
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	return http.ReadResponse(bufio.NewReader(conn), req)
}
