package app

import (
	"encoding/json"
	"fmt"
	"strings"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// eventMessage describes a change. Segments that it names by number get the names that the
// store knows; store may be nil.
func eventMessage(of journal.Stamp, c metadata.Change, store *metadata.Store) *pb.EventsResponse {
	var names []metadata.SegmentName
	if numbers := segmentsOf(c); len(numbers) > 0 && store != nil {
		names = store.SegmentNames(numbers)
	}
	return eventWith(of, c, names)
}

// eventWith describes a change with the names of the segments that it names by number.
func eventWith(of journal.Stamp, c metadata.Change, names []metadata.SegmentName) *pb.EventsResponse {
	e := &pb.EventsResponse{Term: uint64(of.Term), Sequence: uint64(of.Seq), ClusterTimeMs: int64(of.Time), Stream: streams[c.Stream()]}
	e.Type, e.Text = typeAndText(c)
	e.Text += firstOf(names)
	if b, err := json.Marshal(eventFields(c, names)); err == nil {
		e.Json = string(b)
	}
	return e
}

func segmentsOf(c metadata.Change) []segment.Number {
	switch c := c.(type) {
	case *deleteevents.Event:
		return c.Segments
	case *metadata.CloseSegment:
		return []segment.Number{c.Number}
	case *metadata.Mount:
		return c.Replaces
	case *metadata.SaveDrain:
		return c.Numbers
	}
	return nil
}

// firstOf returns what the text of an event says of the names of its segments.
func firstOf(names []metadata.SegmentName) string {
	const few = 3
	if len(names) == 0 {
		return ""
	}
	var first []string
	for _, n := range names[:min(few, len(names))] {
		first = append(first, cli.Key(n.Name))
	}
	if len(names) > few {
		first = append(first, "...")
	}
	return ": " + strings.Join(first, ", ")
}

var streams = map[metadata.Stream]pb.EventStream{
	metadata.LeaseRenewals: pb.EventStream_EVENT_STREAM_LEASE_RENEWALS,
	metadata.ObjectEvents:  pb.EventStream_EVENT_STREAM_OBJECT_EVENTS,
	metadata.DeleteEvents:  pb.EventStream_EVENT_STREAM_DELETE_EVENTS,
}

func typeAndText(c metadata.Change) (kind, text string) {
	switch c := c.(type) {
	case *leasesync.Batch:
		return "LEASE_RENEWALS", fmt.Sprintf("%d leases", len(c.Renewals))
	case *deleteevents.Event:
		return c.Type.String(), deletion(c)
	case *metadata.TermStart:
		return "TERM_START", fmt.Sprintf("term %d, lease TTL %v, guard %v, empty %v", c.Term, c.Params.LeaseTTL, c.Guard, c.Empty)
	case *metadata.Fork:
		return "FORK", fmt.Sprintf("free memory stays in quarantine for %v", c.Hold)
	case *metadata.UseRules:
		return "USE_RULES", fmt.Sprintf("version %d", c.Version)
	case *metadata.Mount:
		text := fmt.Sprintf("%v %s, %d bytes at %s", c.Spec.ID, cli.Key(c.Spec.Name), c.Spec.Size, cli.Key(c.Spec.Endpoint))
		if n := len(c.Replaces); n > 0 {
			text += fmt.Sprintf(", replaces %d", n)
		}
		return "MOUNT_SEGMENT", text
	case *metadata.PutStart:
		return "PUT_START", fmt.Sprintf("object %v key %q, %d bytes, %d replicas", c.ID, c.Key, c.Size, len(c.Placements))
	case *metadata.PutEnd:
		return "PUT_END", fmt.Sprintf("object %v", c.ID)
	case *metadata.RevokeReplicas:
		return "REVOKE_REPLICAS", fmt.Sprintf("object %v", c.ID)
	case *metadata.ClearReplicas:
		return "CLEAR_REPLICAS", fmt.Sprintf("object %v on %d segments", c.ID, len(c.Segments))
	case *metadata.Discard:
		return "DISCARD", fmt.Sprintf("object %v", c.ID)
	case *eviction.Cutoff:
		return "EVICTION_CUTOFF", fmt.Sprintf("up to (%d, %v), soft pins as of %d, pinned too: %v", c.Deadline, c.ID, c.PinTime, c.IncludePinned)
	case *metadata.MountLocalDisk:
		return "MOUNT_LOCAL_DISK", fmt.Sprintf("of client %v, offloading %v", c.Client, c.Offloading)
	case *metadata.SetOffloading:
		return "SET_OFFLOADING", fmt.Sprintf("of SSD %d: %v", c.Number, c.Offloading)
	case *metadata.UnmountLocalDisk:
		return "UNMOUNT_LOCAL_DISK", fmt.Sprintf("SSD %d", c.Number)
	case *metadata.CloseSegment:
		return "CLOSE_SEGMENT", fmt.Sprintf("segment %d until %d", c.Number, c.Until)
	case *metadata.WipeDisks:
		return "WIPE_DISKS", fmt.Sprintf("SSD %d; 0 for all", c.Number)
	case *metadata.StartTransfer:
		return "START_TRANSFER", fmt.Sprintf("object %v from %d to %d segments, move %v, promotion %v", c.ID, c.Source, len(c.Targets), c.Move, c.Promotion)
	case *metadata.EndTransfer:
		return "END_TRANSFER", fmt.Sprintf("object %v, complete %v", c.ID, c.Complete)
	case *metadata.AddTask:
		return "ADD_TASK", fmt.Sprintf("client %v copies key %q from %s to %d others, move %v", c.Client, c.Key, cli.Key(c.Source), len(c.Targets), c.Move)
	case *metadata.SetTasks:
		return "SET_TASKS", fmt.Sprintf("%d tasks have the status %v: %s", len(c.IDs), c.Status, cli.Printable(c.Message))
	case *metadata.SaveDrain:
		return "SAVE_DRAIN", fmt.Sprintf("job %s of %d segments: %v", service.Decimal(c.ID), len(c.Numbers), c.Status)
	case *metadata.SetQuota:
		return "SET_QUOTA", fmt.Sprintf("tenant %q: %d bytes; 0 for no quota", c.Tenant, c.Bytes)
	case *metadata.AddLocalDisk:
		return "ADD_LOCAL_DISK", fmt.Sprintf("object %v on SSD %d", c.ID, c.Number)
	}
	return fmt.Sprintf("%T", c), ""
}

func deletion(e *deleteevents.Event) string {
	switch {
	case e.Type == deleteevents.UnmountSegment:
		if len(e.Segments) == 1 {
			return "1 segment"
		}
		return fmt.Sprintf("%d segments", len(e.Segments))
	case e.Pattern != "":
		return fmt.Sprintf("%d objects matching %q", len(e.Removals), e.Pattern)
	case len(e.Removals) == 1:
		return fmt.Sprintf("object %v", e.Removals[0].ID)
	}
	return fmt.Sprintf("%d objects", len(e.Removals))
}
