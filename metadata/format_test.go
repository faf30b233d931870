package metadata_test

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

var update = flag.Bool("update", false, "write testdata/format.golden anew, for a new version of the format")

// The journal's format does not change by accident: nodes of one cluster may run
// different versions.
func TestFormat(t *testing.T) {
	const golden = "testdata/format.golden"
	got := ""
	sum := uint64(7)
	ref := metadata.Ref{Shard: 1023, ID: 1<<64 - 1}
	for _, c := range []metadata.Change{
		&metadata.TermStart{Term: metadata.MaxTerm, Params: params, Guard: time.Second, Empty: true},
		&metadata.TermStart{Term: 1, Params: metadata.Params{LeaseTTL: time.Second, DiscardTimeout: time.Second, ReleaseTimeout: time.Hour, LeaseOnPutEnd: true}},
		&metadata.Mount{Spec: segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1 << 32, Size: 1 << 20, Endpoint: "e", Protocol: "p", HostID: "h", Client: client(3)}, Replaces: []segment.Number{1, 2}},
		&metadata.Mount{Spec: segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1 << 32, Size: 1 << 20}},
		&metadata.PutStart{Tenant: "t", Key: "k", ID: 1, Size: 1, Placements: []metadata.Placement{{Segment: 1, Range: segment.Range{Length: 8}}, {Segment: 9, Range: segment.Range{Offset: 5, Length: 8}}}},
		&metadata.PutStart{Tenant: metadata.DefaultTenant, Key: "k", ID: 2, Request: 3, DiskPath: "/d", SoftPin: time.Hour, HardPin: true, Group: "g", DataType: 4, Replaces: 1},
		&metadata.PutStart{Tenant: metadata.DefaultTenant, Key: "k", ID: 2, Group: "g", Client: client(9), Size: 1 << 40},
		&metadata.PutStart{Tenant: metadata.DefaultTenant, Key: "k", ID: 2, Size: 1, Replaces: 1, Upsert: true, LeaseUntil: 9, Placements: []metadata.Placement{{Segment: 1, Range: segment.Range{Length: 8}}}},
		&metadata.PutStart{Tenant: metadata.DefaultTenant, Key: "k", ID: 2, Size: 1, Replaces: 1, Upsert: true, InPlace: true, Placements: []metadata.Placement{{Segment: 1, Range: segment.Range{Length: 8}}}},
		&metadata.PutEnd{Ref: ref, Selector: metadata.SelectAll, Checksum: &sum},
		&metadata.PutEnd{Ref: ref, Selector: metadata.SelectMemory},
		&metadata.RevokeReplicas{Ref: ref, Selector: metadata.SelectDisk},
		&metadata.ClearReplicas{Ref: ref, Segments: []segment.Number{1, 1<<32 - 1}},
		&metadata.ClearReplicas{Ref: ref},
		&metadata.ClearReplicas{Ref: ref, Segments: []segment.Number{1}, LeaseUntil: 9},
		&metadata.ClearReplicas{Ref: ref, Disk: true},
		&metadata.CloseSegment{Number: 7, Until: 9},
		&metadata.WipeDisks{},
		&metadata.WipeDisks{Number: 7},
		&metadata.Discard{Ref: ref},
		&eviction.Cutoff{Deadline: -1, ID: 5, PinTime: 1 << 62, IncludePinned: true},
		&metadata.MountLocalDisk{Client: client(1), Offloading: true},
		&metadata.SetOffloading{Number: 7, Offloading: true},
		&metadata.SetOffloading{Number: 7, Capacity: 1 << 40},
		&metadata.UnmountLocalDisk{Number: 7},
		&metadata.AddLocalDisk{Ref: ref, Number: 8, Endpoint: "x:1"},
		&metadata.UseRules{Version: metadata.NewestRules},
		&metadata.Fork{Hold: time.Minute},
		&metadata.StartTransfer{Ref: ref, Client: client(3), Move: true, Source: 1, Targets: []metadata.Placement{{Segment: 9, Range: segment.Range{Offset: 5, Length: 8}}}},
		&metadata.StartTransfer{Ref: ref, Client: client(3), Promotion: true, Source: 1, Targets: []metadata.Placement{{Segment: 9, Range: segment.Range{Length: 8}}}},
		&metadata.EndTransfer{Ref: ref, Complete: true, LeaseUntil: 9},
		&metadata.AddTask{Task: metadata.Task{ID: metadata.TaskID{1}, Client: client(3), Move: true, Tenant: "t", Key: "k", Source: "a", Targets: []string{"b"}}},
		&metadata.SetTasks{IDs: []metadata.TaskID{{1}, {2}}, Status: metadata.TaskFailed, Message: "m"},
		&metadata.SaveDrain{Drain: metadata.Drain{ID: metadata.TaskID{1}, Segments: []string{"a"}, Targets: []string{"b"}, Numbers: []segment.Number{1}, Concurrency: 4, Status: metadata.DrainRunning, Message: "m"}},
		&metadata.SetQuota{Tenant: "t", Bytes: 300},
		&metadata.SetQuota{Tenant: metadata.DefaultTenant, More: true},
		&leasesync.Batch{Renewals: []leasesync.Renewal{{Ref: ref, Deadline: 5}, {Ref: metadata.Ref{Shard: 1023, ID: 4}, Deadline: -5}, {Ref: metadata.Ref{Shard: 3, ID: 4}, Deadline: 1 << 60}}},
		&deleteevents.Event{Type: deleteevents.RemoveByRegex, Pattern: "p.*", Removals: []*metadata.Removal{{Ref: ref, LeaseUntil: 9}, {Ref: metadata.Ref{Shard: 1, ID: 2}, Request: 77}}},
		&deleteevents.Event{Type: deleteevents.UnmountSegment, Segments: []segment.Number{1, 2, 1 << 31}},
		&deleteevents.Event{Type: deleteevents.UnmountSegment, Segments: []segment.Number{1}, Claims: []metadata.Claim{{Segment: 1, Range: segment.Range{Offset: 8, Length: 300}, Until: 9}}},
		&metadata.Mount{Spec: segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1, Size: 1}, Replaces: []segment.Number{1}, Claims: []metadata.Claim{{Segment: 1, Range: segment.Range{Length: 1}, Until: -9}}},
		&metadata.Mount{Spec: segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1, Size: 1, Instance: 1 << 63}, Claims: []metadata.Claim{{Segment: 1, Range: segment.Range{Length: 1}, Until: -9}}},
		&metadata.Mount{Spec: segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1, Size: 1, Instance: 7}},
	} {
		got += fmt.Sprintf("%T %s\n", c, hex.EncodeToString(metadata.Encode(nil, c)))
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}
