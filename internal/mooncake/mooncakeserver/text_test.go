package mooncakeserver_test

import (
	"testing"
	"unicode/utf8"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/segment"
)

// No text that is not UTF-8 gets into the state: an answer over gRPC that has
// any of it cannot be made.
func TestTextThatIsNotUTF8(t *testing.T) {
	each(t, func(t *testing.T, n *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		const bad = "a\xff"
		disk := mooncake.Args{Client: client(1), Offloading: true}
		expect(t, "MountLocalDiskSegment", ask(t, c, g.MountLocalDisk, disk), errs.OK)
		put(t, c, 7, "a", "b")
		before := n.primary.Store.Position()
		for name, change := range map[string]func(*segment.Spec){
			"name": func(s *segment.Spec) { s.Name = bad }, "endpoint": func(s *segment.Spec) { s.Endpoint = bad },
			"protocol": func(s *segment.Spec) { s.Protocol = bad }, "host id": func(s *segment.Spec) { s.HostID = bad },
		} {
			if name == "host id" && g.Name != "head" {
				continue
			}
			s := spec(5)
			change(&s)
			expect(t, "MountSegment, "+name, ask(t, c, g.MountSegment, mooncake.Args{Client: client(7), Segment: s}), errs.InvalidParams)
			expect(t, "ReMountSegment, "+name, ask(t, c, g.ReMountSegment, mooncake.Args{Client: client(7), Segments: []segment.Spec{spec(6), s}}), errs.InvalidParams)
		}

		expect(t, "PutStart", ask(t, c, g.PutStart, mooncake.Args{Client: client(7), Key: bad, Size: 1, Config: config()}), errs.InvalidKey)
		want(t, "BatchPutStart", ask(t, c, g.BatchPutStart,
			mooncake.Args{Client: client(7), Keys: []string{"c", bad}, Sizes: []uint64{1, 1}, Config: config()}), errs.InvalidKey, errs.InvalidKey)
		if g.Name != "v0.3.11" {
			grouped := config()
			grouped.Groups = &[]string{bad}
			expect(t, "PutStart, group", ask(t, c, g.PutStart, mooncake.Args{Client: client(7), Key: "c", Size: 1, Config: grouped}), errs.InvalidKey)
		}
		expect(t, "RemoveByRegex", ask(t, c, g.RemoveByRegex, mooncake.Args{Key: bad}), errs.InvalidParams) // events name the pattern

		done := mooncake.Args{
			Client: client(1), Tasks: []mooncake.OffloadTask{{Key: "b", Size: 100}, {Key: "a", Size: 100}},
			Objects: []mooncake.OffloadedObject{{DataSize: 100, Endpoint: "ssd:1"}, {DataSize: 100, Endpoint: "ssd\xff:1"}},
		}
		expect(t, "NotifyOffloadSuccess", ask(t, c, g.NotifyOffloadSuccess, done), errs.InvalidParams)
		done.Objects[1].DataSize = -1
		if after := n.primary.Store.Position(); after != before {
			t.Errorf("something was changed: from %+v to %+v; want nothing changed", before, after)
		}
		expect(t, "it, of a copy that was not made", ask(t, c, g.NotifyOffloadSuccess, done), errs.OK)
		list := ask(t, c, g.BatchGetReplicaList, mooncake.Args{Keys: []string{"a", "b"}})
		want(t, "BatchGetReplicaList", list, errs.OK, errs.OK)
		for _, r := range append(list[0].Value.Replicas, list[1].Value.Replicas...) {
			if !utf8.ValidString(r.Endpoint) {
				t.Errorf("a replica: got %+v, want UTF-8 in its endpoint: gRPC carries no other text", r)
			}
		}
	})
}
