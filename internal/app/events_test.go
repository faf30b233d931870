package app

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

var update = flag.Bool("update", false, "write testdata/events.golden anew; programs read these names, so add some, and change none")

// A drain job has one id everywhere: the one with which operators look after it.
func TestEventOfADrain(t *testing.T) {
	c := &metadata.SaveDrain{Drain: metadata.Drain{ID: [16]byte{7: 1, 15: 2}}}
	if _, text := typeAndText(c); !strings.HasPrefix(text, "job 1-2 of 0 segments") {
		t.Errorf("got %q, want the id as masterctl drain prints it", text)
	}
}

// An event of a mount says what it replaces, if there is anything.
func TestEventOfAMount(t *testing.T) {
	for want, replaces := range map[string][]segment.Number{" h, 7 bytes at e": nil, " h, 7 bytes at e, replaces 2": {1, 2}} {
		c := &metadata.Mount{Spec: segment.Spec{Name: "h", Endpoint: "e", Size: 7}, Replaces: replaces}
		if _, text := typeAndText(c); !strings.HasSuffix(text, want) {
			t.Errorf("%d replaced: got %q, want %q at its end", len(replaces), text, want)
		}
	}
}

// A name that a peer chose forges no line, and one that prints stays as it is.
func TestNamesInEvents(t *testing.T) {
	const forged, quoted = "ev\nil\x1b[31m", `"ev\nil\x1b[31m"`
	for name, want := range map[string]string{"host-1:17000": "host-1:17000", forged: quoted} {
		for _, c := range []metadata.Change{
			&metadata.Mount{Spec: segment.Spec{Name: name, Endpoint: "e"}},
			&metadata.Mount{Spec: segment.Spec{Name: "n", Endpoint: name}},
			&metadata.AddTask{Task: metadata.Task{Source: name}},
			&metadata.SetTasks{Message: name},
		} {
			if _, text := typeAndText(c); !strings.Contains(text, strings.Trim(want, `"`)) || strings.ContainsAny(text, "\n\x1b") {
				t.Errorf("%T: got %q, want %s in it", c, text, want)
			}
		}
		e := eventWith(journal.Stamp{}, &metadata.CloseSegment{}, []metadata.SegmentName{{Name: name}})
		if !strings.HasSuffix(e.GetText(), ": "+want) {
			t.Errorf("got %q, want %s at its end", e.GetText(), want)
		}
	}
}

// Programs read events as JSON: types and names stay. An event of each kind that the journal
// knows is among them.
func TestEventsAsJSON(t *testing.T) {
	const golden, formats = "testdata/events.golden", "../../metadata/testdata/format.golden"
	got, kinds := "", map[string]bool{}
	for _, c := range eventsOfEachKind() {
		kinds[fmt.Sprintf("%T", c)] = true
		e := eventMessage(journal.Stamp{}, c, nil)
		got += fmt.Sprintf("%s: %s: %s\n", e.GetType(), e.GetText(), e.GetJson())
	}
	named := &deleteevents.Event{Type: deleteevents.UnmountSegment, Segments: []segment.Number{1}}
	e := eventWith(journal.Stamp{}, named, []metadata.SegmentName{{Number: 1, Name: "host-1", ID: segment.ID{1}}})
	got += fmt.Sprintf("%s: %s: %s\n", e.GetType(), e.GetText(), e.GetJson())

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
		t.Errorf("events as JSON are\n%s\nwant\n%s", got, want)
	}
	known, err := os.ReadFile(formats)
	if err != nil {
		t.Fatal(err)
	}
	journaled := map[string]bool{}
	for line := range strings.Lines(string(known)) {
		kind, _, _ := strings.Cut(line, " ")
		journaled[kind] = true
	}
	if !maps.Equal(kinds, journaled) {
		t.Errorf("there are events of %v, want %v", slices.Sorted(maps.Keys(kinds)), slices.Sorted(maps.Keys(journaled)))
	}
}

// eventsOfEachKind has all fields of each kind set, so that JSON leaves none out.
func eventsOfEachKind() []metadata.Change {
	sum, ref, client := uint64(7), metadata.Ref{Shard: 1023, ID: 5}, segment.ClientID{3}
	placed := []metadata.Placement{{Segment: 9, Range: segment.Range{Offset: 5, Length: 8}}}
	claims := []metadata.Claim{{Segment: 1, Range: segment.Range{Offset: 8, Length: 300}, Until: 9}}
	params := metadata.Params{LeaseTTL: time.Second, DiscardTimeout: 2 * time.Second, ReleaseTimeout: 3 * time.Second, LeaseOnPutEnd: true}
	return []metadata.Change{
		&metadata.TermStart{Term: 1, Params: params, Guard: time.Second, Empty: true},
		&metadata.Fork{Hold: time.Minute},
		&metadata.UseRules{Version: 1},
		&metadata.Mount{
			Spec: segment.Spec{
				ID: segment.ID{1}, Name: "a", Base: 1 << 32, Size: 1 << 20, Endpoint: "e", Protocol: "p", HostID: "h", Client: client, Instance: 7,
			},
			Replaces: []segment.Number{1, 2}, Claims: claims,
		},
		&metadata.CloseSegment{Number: 7, Until: 9},
		&metadata.PutStart{
			Tenant: "t", Key: "k", ID: 1, Client: client, Size: 8, Request: 3, Placements: placed, DiskPath: "/d", SoftPin: time.Hour, HardPin: true,
			Group: "g", DataType: 4, Replaces: 1, Upsert: true, InPlace: true, LeaseUntil: 9,
		},
		&metadata.PutEnd{Ref: ref, Selector: metadata.SelectAll, Checksum: &sum},
		&metadata.RevokeReplicas{Ref: ref, Selector: metadata.SelectDisk},
		&metadata.ClearReplicas{Ref: ref, Segments: []segment.Number{1}, LeaseUntil: 9, Disk: true},
		&metadata.Discard{Ref: ref},
		&eviction.Cutoff{Deadline: 4, ID: 5, PinTime: 6, IncludePinned: true},
		&metadata.MountLocalDisk{Client: client, Offloading: true},
		&metadata.SetOffloading{Number: 7, Offloading: true, Capacity: 1 << 40},
		&metadata.UnmountLocalDisk{Number: 7},
		&metadata.AddLocalDisk{Ref: ref, Number: 8, Endpoint: "x:1"},
		&metadata.WipeDisks{Number: 7},
		&metadata.StartTransfer{Ref: ref, Client: client, Move: true, Promotion: true, Source: 1, Targets: placed},
		&metadata.EndTransfer{Ref: ref, Complete: true, LeaseUntil: 9},
		&metadata.AddTask{Task: metadata.Task{
			ID: metadata.TaskID{1}, Client: client, Move: true, Tenant: "t", Key: "k", Source: "a", Targets: []string{"b"}, Size: 8, Status: metadata.TaskFailed,
			Message: "m", Created: 1, Updated: 2,
		}},
		&metadata.SetTasks{IDs: []metadata.TaskID{{1}}, Status: metadata.TaskFailed, Message: "m"},
		&metadata.SaveDrain{Drain: metadata.Drain{
			ID: metadata.TaskID{1}, Segments: []string{"a"}, Targets: []string{"b"}, Numbers: []segment.Number{1}, Concurrency: 4, Status: metadata.DrainRunning, Message: "m",
			Created: 1, Updated: 2, Succeeded: 3, Failed: 4, Bytes: 5,
		}},
		&metadata.SetQuota{Tenant: "t", Bytes: 300, More: true},
		&leasesync.Batch{Renewals: []leasesync.Renewal{{Ref: ref, Deadline: 5}}},
		&deleteevents.Event{Type: deleteevents.Remove, Removals: []*metadata.Removal{{Ref: ref, LeaseUntil: 9, Request: 77}}},
		&deleteevents.Event{Type: deleteevents.RemoveByRegex, Pattern: "p.*", Removals: []*metadata.Removal{{Ref: ref}}},
		&deleteevents.Event{Type: deleteevents.RemoveAll, Removals: []*metadata.Removal{{Ref: ref}, {Ref: ref}}},
		&deleteevents.Event{Type: deleteevents.PutRevoke, Removals: []*metadata.Removal{{Ref: ref}}},
		&deleteevents.Event{Type: deleteevents.EvictTenant, Removals: []*metadata.Removal{{Ref: ref}}},
		&deleteevents.Event{Type: deleteevents.UnmountSegment, Segments: []segment.Number{1}, Claims: claims},
	}
}
