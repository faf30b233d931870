package app

import (
	"strconv"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// fields are an event, or a part of one, as its JSON has it. Programs read these names: they
// stay, whatever the fields of the Go types are called. docs/reference.md lists them.
//
// Numbers of 64 bits are decimal strings, as in protobuf's JSON, since JavaScript and jq round
// what is above 2^53. So are durations (_ms) and cluster times (_cluster_time_ms), both in
// milliseconds. What has no value is null.
type fields map[string]any

// eventFields returns all of a change but what is internal, such as shards. names are those of
// the segments that it names by number, as far as they are known. It returns nil for a type
// that it does not know.
func eventFields(c metadata.Change, names []metadata.SegmentName) fields {
	switch c := c.(type) {
	case *leasesync.Batch:
		return fields{"renewals": list(c.Renewals, func(r leasesync.Renewal) renewal { return renewal{r.Deadline, r.ID} })}
	case *deleteevents.Event:
		return deletionFields(c, names)
	case *metadata.TermStart:
		return fields{
			"term": c.Term, "lease_ttl_ms": millis(c.Params.LeaseTTL), "discard_timeout_ms": millis(c.Params.DiscardTimeout),
			"release_timeout_ms": millis(c.Params.ReleaseTimeout), "lease_on_put_end": c.Params.LeaseOnPutEnd, "guard_ms": millis(c.Guard), "empty": c.Empty,
		}
	case *metadata.Fork:
		return fields{"hold_ms": millis(c.Hold)}
	case *metadata.UseRules:
		return fields{"version": c.Version}
	case *metadata.SetQuota:
		return fields{"tenant": c.Tenant, "bytes": number(c.Bytes), "more": c.More}
	case *metadata.AddTask:
		return fields{
			"task_id": c.ID, "client_id": c.Client, "move": c.Move, "tenant": c.Tenant, "key": c.Key, "source_segment": c.Source, "target_segments": texts(c.Targets),
			"size": number(c.Size), "status": c.Status.String(), "message": c.Message, "created_cluster_time_ms": at(c.Created), "updated_cluster_time_ms": at(c.Updated),
		}
	case *metadata.SetTasks:
		return fields{"task_ids": list(c.IDs, itself), "status": c.Status.String(), "message": c.Message}
	case *metadata.SaveDrain:
		return fields{
			"job_id": service.Decimal(c.ID), "segments": texts(c.Segments), "target_segments": texts(c.Targets), "segment_numbers": list(c.Numbers, itself),
			"concurrency": c.Concurrency, "status": c.Status.String(), "message": c.Message, "created_cluster_time_ms": at(c.Created),
			"updated_cluster_time_ms": at(c.Updated), "succeeded": number(c.Succeeded), "failed": number(c.Failed), "bytes": number(c.Bytes), "named_segments": named(names),
		}
	}
	return objectFields(c, names)
}

// objectFields returns the fields of a change of an object or of memory.
func objectFields(c metadata.Change, names []metadata.SegmentName) fields {
	switch c := c.(type) {
	case *metadata.PutStart:
		return fields{
			"tenant": c.Tenant, "key": c.Key, "object_id": number(c.ID), "client_id": c.Client, "size": number(c.Size), "request_id": id(c.Request),
			"placements": list(c.Placements, placement), "disk_path": c.DiskPath, "soft_pin_ms": millis(c.SoftPin), "hard_pin": c.HardPin, "group_id": c.Group,
			"data_type": c.DataType, "replaces_object_id": id(c.Replaces), "upsert": c.Upsert, "in_place": c.InPlace, "lease_until_cluster_time_ms": at(c.LeaseUntil),
		}
	case *metadata.PutEnd:
		f := fields{"object_id": number(c.ID), "selector": c.Selector.String(), "object_checksum": nil}
		if c.Checksum != nil {
			f["object_checksum"] = number(*c.Checksum)
		}
		return f
	case *metadata.RevokeReplicas:
		return fields{"object_id": number(c.ID), "selector": c.Selector.String()}
	case *metadata.ClearReplicas:
		return fields{"object_id": number(c.ID), "segment_numbers": list(c.Segments, itself), "lease_until_cluster_time_ms": at(c.LeaseUntil), "disk": c.Disk}
	case *metadata.Discard:
		return fields{"object_id": number(c.ID)}
	case *eviction.Cutoff:
		return fields{"deadline_cluster_time_ms": at(c.Deadline), "object_id": number(c.ID), "pin_cluster_time_ms": at(c.PinTime), "include_pinned": c.IncludePinned}
	case *metadata.StartTransfer:
		return fields{
			"object_id": number(c.ID), "client_id": c.Client, "move": c.Move, "promotion": c.Promotion, "source_number": c.Source,
			"placements": list(c.Targets, placement),
		}
	case *metadata.EndTransfer:
		return fields{"object_id": number(c.ID), "complete": c.Complete, "lease_until_cluster_time_ms": at(c.LeaseUntil)}
	case *metadata.Mount:
		s := &c.Spec
		return fields{
			"segment_id": s.ID, "segment_name": s.Name, "base": number(s.Base), "size": number(s.Size), "endpoint": s.Endpoint, "protocol": s.Protocol,
			"host_id": s.HostID, "client_id": s.Client, "instance": id(s.Instance), "replaces_segment_numbers": list(c.Replaces, itself), "claims": list(c.Claims, claim),
			"named_segments": named(names),
		}
	case *metadata.CloseSegment:
		return fields{"segment_number": c.Number, "until_cluster_time_ms": at(c.Until), "named_segments": named(names)}
	case *metadata.MountLocalDisk:
		return fields{"client_id": c.Client, "offloading": c.Offloading}
	case *metadata.SetOffloading:
		return fields{"ssd_number": c.Number, "offloading": c.Offloading, "capacity_bytes": number(c.Capacity)}
	case *metadata.UnmountLocalDisk:
		return fields{"ssd_number": c.Number}
	case *metadata.AddLocalDisk:
		return fields{"object_id": number(c.ID), "ssd_number": c.Number, "endpoint": c.Endpoint}
	case *metadata.WipeDisks:
		return fields{"ssd_number": c.Number}
	}
	return nil
}

func deletionFields(e *deleteevents.Event, names []metadata.SegmentName) fields {
	if e.Type == deleteevents.UnmountSegment {
		return fields{"segment_numbers": list(e.Segments, itself), "claims": list(e.Claims, claim), "named_segments": named(names)}
	}
	f := fields{"removals": list(e.Removals, func(r *metadata.Removal) removal {
		d := removal{r.LeaseUntil, r.ID, nil}
		if r.Request != 0 {
			d.Request = &r.Request
		}
		return d
	})}
	if e.Type == deleteevents.RemoveByRegex {
		f["pattern"] = e.Pattern
	}
	return f
}

// renewal and removal are fields of known types: one event has thousands of them.
type (
	renewal struct {
		Deadline metadata.Time     `json:"deadline_cluster_time_ms,string"`
		ID       metadata.ObjectID `json:"object_id"`
	}
	removal struct {
		LeaseUntil metadata.Time     `json:"lease_until_cluster_time_ms,string"`
		ID         metadata.ObjectID `json:"object_id"`
		Request    *uint64           `json:"request_id,string"`
	}
)

func placement(p metadata.Placement) fields {
	return fields{"segment_number": p.Segment, "offset_units": p.Range.Offset, "length_units": p.Range.Length}
}

func claim(c metadata.Claim) fields {
	return fields{
		"segment_number": c.Segment, "offset_units": c.Range.Offset, "length_units": c.Range.Length, "until_cluster_time_ms": at(c.Until),
	}
}

func named(names []metadata.SegmentName) []fields {
	return list(names, func(n metadata.SegmentName) fields {
		return fields{"segment_number": n.Number, "segment_id": n.ID, "segment_name": n.Name}
	})
}

// list describes the elements of a list; an empty one is no null.
func list[T, D any](all []T, describe func(T) D) []D {
	described := make([]D, len(all))
	for i, one := range all {
		described[i] = describe(one)
	}
	return described
}

func itself[T segment.Number | metadata.TaskID | string](v T) T { return v }

func texts(all []string) []string { return list(all, itself) }

func number[T ~uint64](n T) string { return strconv.FormatUint(uint64(n), 10) }

func at(t metadata.Time) string { return strconv.FormatInt(int64(t), 10) }

func id[T ~uint64](n T) any {
	if n == 0 {
		return nil
	}
	return number(n)
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
