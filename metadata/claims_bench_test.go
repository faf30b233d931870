package metadata_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// BenchmarkClaimsEnd is a commit each second while the claims of many endpoints end, four
// each.
func BenchmarkClaimsEnd(b *testing.B) {
	for _, at := range []struct{ endpoints, seconds int }{{100_000, 600}, {16_384, 600}, {16_384, 4}} {
		b.Run(fmt.Sprintf("endpoints=%d/seconds=%d", at.endpoints, at.seconds), func(b *testing.B) { benchClaimsEnd(b, at.endpoints, at.seconds) })
	}
}

func benchClaimsEnd(b *testing.B, endpoints, seconds int) {
	s, now := metadata.New(metadata.Options{}), metadata.Time(1)
	commit := func(changes ...metadata.Change) {
		if _, err := s.Apply(&metadata.Commit{Seq: s.Position().Seq + 1, Term: 1, Time: now, Changes: changes}, nil); err != nil {
			b.Fatal(err)
		}
	}
	s.StartIDs(1)
	commit(&metadata.TermStart{Term: 1, Params: params}, &metadata.UseRules{Version: metadata.NewestRules})
	for n := 0; b.Loop(); n++ {
		if n%seconds == 0 {
			b.StopTimer()
			claimMany(b, s, endpoints, commit, func(e *deleteevents.Event, number segment.Number, n int) {
				for k := range 4 {
					e.Claims = append(e.Claims, metadata.Claim{
						Segment: number, Range: segment.Range{Offset: uint32(100 * k), Length: 50},
						Until: now + 1000*metadata.Time(1+(n+k*seconds/4)%seconds),
					})
				}
			})
			b.StartTimer()
		}
		now += 1000
		commit()
	}
}

// claimMany mounts a segment at each of many endpoints and unmounts it with claims.
func claimMany(t testing.TB, s *metadata.Store, endpoints int, commit func(...metadata.Change), claim func(e *deleteevents.Event, number segment.Number, n int)) {
	t.Helper()
	const batch = 512
	for at := 0; at < endpoints; at += batch {
		var mounts []metadata.Change
		for n := at; n < min(endpoints, at+batch); n++ {
			mounts = append(mounts, &metadata.Mount{Spec: atEndpoint(n)})
		}
		commit(mounts...)
		e := &deleteevents.Event{Type: deleteevents.UnmountSegment}
		for n := at; n < min(endpoints, at+batch); n++ {
			number, mounted := s.FindSegment(atEndpoint(n).ID)
			if !mounted {
				t.Fatalf("endpoint %d: got no segment, want one mounted there", n)
			}
			e.Segments = append(e.Segments, number)
			claim(e, number, n)
		}
		commit(e)
	}
}

func atEndpoint(n int) segment.Spec {
	spec := segment.Spec{Name: "m", Base: 1 << 40, Size: 1 << 20, Endpoint: fmt.Sprintf("host-%d:12345", n), Protocol: "rdma", Client: client(1)}
	binary.BigEndian.PutUint64(spec.ID[:], uint64(n+1))
	return spec
}
