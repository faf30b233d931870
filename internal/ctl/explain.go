package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/cli"
)

// An explanation is what `masterctl explain` prints.
type explanation struct {
	NodeID  string          `json:"node_id"` // who was asked
	Key     string          `json:"key"`
	Object  *explainedState `json:"object"` // null if there is none
	History []eventResult   `json:"history"`
	// Why the history lacks some of the journaled events.
	HistoryNote string `json:"history_note,omitempty"`
	// For an object that is gone without a removal: how many evictions and unmounts came
	// after its last event. One of them may have taken it; these events name no objects.
	Evictions int `json:"evictions_since,omitempty"`
	Unmounts  int `json:"unmounts_since,omitempty"`

	unjournaled bool // there is no journal
}

// explainedState is an object with all that keeps it.
type explainedState struct {
	ID             string             `json:"object_id"`
	Size           uint64             `json:"size"`
	Age            uint64             `json:"age_ms"` // since its put was started
	Client         string             `json:"client_id"`
	Group          string             `json:"group,omitempty"`
	Replicas       []explainedReplica `json:"replicas"`
	Lease          uint64             `json:"lease_remaining_ms"`
	Pin            string             `json:"pin"`                       // none, soft or hard
	Transfer       bool               `json:"transfer"`                  // a copy, a move or a promotion is under way
	BlocksRemoval  string             `json:"blocks_removal,omitempty"`  // empty if nothing does
	BlocksEviction string             `json:"blocks_eviction,omitempty"` // empty if nothing does
}

type explainedReplica struct {
	replicaResult
	State string `json:"state"` // complete, or processing while it is written
	// Of the segment that holds the replica.
	SegmentStatus string `json:"segment_status,omitempty"`
	Quarantined   uint64 `json:"segment_quarantined_bytes,omitempty"`
}

func (f *Flags) explainCommand() *cobra.Command {
	var limit uint64
	cmd := &cobra.Command{
		Use:   "explain KEY",
		Short: "Print all that is known of an object: where it is, what keeps it, what happened to it",
		Long: `Prints where an object is, its lease, its pins, what blocks its removal or eviction,
and what the journal says of it, as far back as etcd has it (--events-ttl, 60 s by
default). Unlike get it grants no lease.

It exits with 1 if there is no such object.`,
		Args:              cli.Arguments(1, 1, "one KEY"),
		ValidArgsFunction: f.completeKeys,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.withNodes(func(ctx context.Context, cmd *cobra.Command, all nodes) error {
				n := all.best()
				x := explanation{NodeID: n.id, Key: args[0]}
				answer, missing := n.admin.QueryKey(ctx, &pb.QueryKeyRequest{Tenant: f.tenant, Key: args[0]})
				switch {
				case missing == nil:
					x.Object = explained(answer)
					n.addSegments(ctx, x.Object)
				case adminError(missing).Kind != errs.ObjectNotFound:
					return readError(missing)
				}
				x.addHistory(ctx, f, all, limit)
				if err := f.Print(cmd, x, func(w io.Writer) { x.print(w) }); err != nil || x.Object != nil {
					return err
				}
				return x.missing(missing)
			})(cmd, args)
		},
	}
	cmd.Flags().Uint64Var(&limit, "limit", 20, "most events of the history to print; 0 for all")
	return cmd
}

// missing returns the error of an object that is not there, with advice for somebody who has
// seen its history.
func (x *explanation) missing(err error) error {
	advice := "put it first (masterctl put KEY)"
	if !x.unjournaled {
		advice += "; masterctl events has what happened beside it"
	}
	return cli.Advised(fmt.Errorf("%w\nwhat to do: %s", readError(err), advice))
}

func explained(q *pb.QueryKeyResponse) *explainedState {
	o := &explainedState{
		ID: fmt.Sprint(q.GetObject().GetObjectId()), Size: q.GetObject().GetSize(), Age: q.GetAgeMs(), Client: q.GetClientId(), Group: q.GetGroupId(),
		Lease: q.GetLeaseRemainingMs(), Pin: "none", Transfer: q.GetTransfer(), BlocksRemoval: q.GetBlocksRemoval(), BlocksEviction: q.GetBlocksEviction(),
	}
	switch {
	case q.GetHardPin():
		o.Pin = "hard"
	case q.GetSoftPin():
		o.Pin = "soft"
	}
	for _, r := range q.GetObject().GetReplicas() {
		e := explainedReplica{State: strings.ToLower(strings.TrimPrefix(r.GetStatus().String(), "REPLICA_STATUS_"))}
		switch {
		case r.GetMemory() != nil:
			m := r.GetMemory()
			e.replicaResult = replicaResult{Kind: "memory", Segment: m.GetSegmentName(), Endpoint: m.GetEndpoint(), Address: m.GetAddress(), Protocol: m.GetProtocol()}
		case r.GetDisk() != nil:
			e.replicaResult = replicaResult{Kind: "disk", Path: r.GetDisk().GetPath()}
		default:
			e.replicaResult = replicaResult{Kind: "local-disk", Client: r.GetLocalDisk().GetClientId(), Endpoint: r.GetLocalDisk().GetEndpoint()}
		}
		o.Replicas = append(o.Replicas, e)
	}
	return o
}

// addSegments adds the status of the segments that hold the object's replicas, if the node
// answers.
func (n *node) addSegments(ctx context.Context, o *explainedState) {
	resp, _ := n.admin.ListSegments(ctx, &pb.ListSegmentsRequest{})
	for i := range o.Replicas {
		r := &o.Replicas[i]
		for _, s := range resp.GetSegments() {
			spec := s.GetSegment()
			if r.Kind == "memory" && spec.GetName() == r.Segment && r.Address-spec.GetBase() < spec.GetSize() {
				r.SegmentStatus, r.Quarantined = s.GetStatus(), s.GetQuarantinedBytes()
			}
		}
	}
}

// addHistory adds the newest events about the key, and notes why there may have been more.
func (x *explanation) addHistory(ctx context.Context, f *Flags, all nodes, limit uint64) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	x.History = []eventResult{}
	about, times := &follower{Flags: f, about: []*subject{{name: x.Key, tenant: cmp.Or(f.tenant, "default")}}}, all.wallTimes(ctx)
	removed := false
	stream, err := all.best().admin.Events(ctx, &pb.EventsRequest{})
	for err == nil {
		var event *pb.EventsResponse
		event, err = stream.Recv()
		switch kind := event.GetType(); {
		case err != nil:
		case about.wanted(event):
			x.History = append(x.History, times.result(event))
			removed = strings.HasPrefix(kind, "REMOVE") || kind == "PUT_REVOKE" || kind == "DISCARD" || kind == "EVICT_TENANT"
			x.Evictions, x.Unmounts = 0, 0
		case x.Object != nil || removed:
		case kind == "EVICTION_CUTOFF":
			x.Evictions++
		case kind == "UNMOUNT_SEGMENT":
			x.Unmounts++
		}
		if limit > 0 && uint64(len(x.History)) > limit {
			x.History, x.HistoryNote = x.History[1:], "there is more: --limit 0 prints all"
		}
	}
	switch {
	case errors.Is(err, io.EOF):
	case adminError(err).Kind == errs.NotSupported:
		x.unjournaled = true
		x.HistoryNote = "the master runs without high availability, so it keeps no journal"
	default:
		x.HistoryNote = "the journal could not be read to its end: " + readError(err).Error()
	}
}

func (x *explanation) print(w io.Writer) {
	t := cli.NewTable(w)
	if o := x.Object; o == nil {
		t.Row(cli.Key(x.Key), "no object has this key, says "+x.NodeID)
		if x.Evictions+x.Unmounts > 0 {
			t.Row("", fmt.Sprintf("since then %d evictions and %d unmounts may have taken it: masterctl events --type EVICTION_CUTOFF,UNMOUNT_SEGMENT", x.Evictions, x.Unmounts))
		}
	} else {
		t.Row("object", fmt.Sprintf("%s: %s, put %v ago by client %s", o.ID, cli.SizeText(o.Size), cli.Millis(o.Age), o.Client))
		if o.Group != "" {
			t.Row("group", cli.Key(o.Group))
		}
		for i := range o.Replicas {
			r := &o.Replicas[i]
			where := r.State + " on " + r.place()
			if r.SegmentStatus != "" {
				where += fmt.Sprintf("; the segment is %s, and %s of it are freed and not in use again yet (quarantine)", r.SegmentStatus, cli.SizeText(r.Quarantined))
			}
			t.Row(r.Kind, where)
		}
		lease := "none: no reader relies on it"
		if o.Lease > 0 {
			lease = "for another " + cli.Millis(o.Lease).String() + ": readers rely on its bytes until then"
		}
		t.Row("lease", lease)
		t.Row("pin", o.Pin+map[string]string{"soft": ": evicted after others", "hard": ": never evicted"}[o.Pin])
		t.Row("removal", blocked(o.BlocksRemoval))
		t.Row("eviction", blocked(o.BlocksEviction))
	}
	t.End()
	if len(x.History) > 0 {
		fmt.Fprintln(w)
		eventHead(w)
	}
	for i := range x.History {
		_ = x.History[i].row(w)
	}
	if x.HistoryNote != "" {
		fmt.Fprintln(w, "\nhistory: "+cli.Printable(x.HistoryNote))
	} else if len(x.History) == 0 {
		fmt.Fprintln(w, "\nhistory: nothing in what etcd still has of the journal")
	}
}

func blocked(why string) string {
	if why == "" {
		return "possible now"
	}
	return "blocked: " + why
}
