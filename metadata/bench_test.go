package metadata_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// fill returns a store of n complete objects with one replica each and keys of
// 40 bytes, on 128 segments.
func fill(tb testing.TB, n int) (*metadata.Store, []string) {
	tb.Helper()
	s := metadata.New(metadata.Options{})
	fillStore(tb, s, n)
	names := make([]string, n)
	for i := range names {
		names[i] = benchKey(i)
	}
	return s, names
}

// fillStore fills an empty store like fill.
func fillStore(tb testing.TB, s *metadata.Store, n int) {
	tb.Helper()
	seq := metadata.Seq(0)
	commit := func(changes ...metadata.Change) {
		seq++
		if _, err := s.Apply(&metadata.Commit{Seq: seq, Term: 1, Time: metadata.Time(seq), Changes: changes}, nil); err != nil {
			tb.Fatal(err)
		}
	}
	s.StartIDs(1)
	commit(&metadata.TermStart{Term: 1, Params: params})
	for i := range 128 {
		e, err := s.PrepareMount(segment.Spec{
			ID: segment.ID{byte(i), 1}, Name: fmt.Sprintf("host-%d", i), Base: 1 << 40, Size: 1 << 30,
			Endpoint: fmt.Sprintf("host-%d:12345", i), Protocol: "rdma", Client: client(byte(i)),
		})
		if err != nil {
			tb.Fatal(err)
		}
		commit(e)
	}
	const batch = 1000
	for at := 0; at < n; at += batch {
		var starts, ends []metadata.Change
		for i := at; i < min(at+batch, n); i++ {
			e, _, _, err := s.PreparePutStart(&metadata.Put{Tenant: "default", Key: benchKey(i), Client: client(1), Size: 4096, Replicas: 1}, 1)
			if err != nil {
				tb.Fatal(err)
			}
			starts = append(starts, e)
		}
		commit(starts...)
		for i := at; i < min(at+batch, n); i++ {
			e, _, err := s.PreparePutEnd(metadata.PutRef{Tenant: "default", Key: benchKey(i), Client: client(1), Selector: metadata.SelectMemory}, nil)
			if err != nil {
				tb.Fatal(err)
			}
			ends = append(ends, e)
		}
		commit(ends...)
	}
}

func benchKey(i int) string { return fmt.Sprintf("model-7b/layer-00/block-%016x", i*0x9E3779B1) }

func BenchmarkGetReplicaList(b *testing.B) {
	s, names := fill(b, 1_000_000)
	for _, tc := range []struct {
		name string
		keys int
	}{{"uniform1M", 1_000_000}, {"hot10k", 10_000}} {
		b.Run(tc.name, func(b *testing.B) {
			requests := shuffled(names[:tc.keys])
			now, i, leases := s.Position().Time+1_000_000, 0, leases(s)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := leases.GetReplicaList("default", requests[i], now); err != nil {
					b.Fatal(err)
				}
				if i++; i == len(requests) {
					b.StopTimer()
					i, now = 0, now+1000
					journalRenewals(b, s, now)
					b.StartTimer()
				}
			}
			journalRenewals(b, s, now+1000)
		})
	}
}

// shuffled returns the keys in random order as the network would bring them:
// copies that are fresh in the cache when they are looked up.
func shuffled(names []string) []string {
	var all strings.Builder
	order := rand.New(rand.NewPCG(1, 2)).Perm(len(names))
	for _, i := range order {
		all.WriteString(names[i])
	}
	requests, rest := make([]string, len(names)), all.String()
	for i, n := range order {
		requests[i], rest = rest[:len(names[n])], rest[len(names[n]):]
	}
	return requests
}

// journalRenewals journals marked renewals, as a scan does, so that later reads mark again.
func journalRenewals(tb testing.TB, s *metadata.Store, now metadata.Time) {
	tb.Helper()
	if _, err := s.Apply(&metadata.Commit{Seq: s.Position().Seq + 1, Term: 1, Time: now, Changes: marked(s)}, nil); err != nil {
		tb.Fatal(err)
	}
	marked(s)
}

func BenchmarkExists(b *testing.B) {
	s, names := fill(b, 100_000)
	i, leases := 0, leases(s)
	b.ReportAllocs()
	for b.Loop() {
		leases.Exists("default", names[i%len(names)], 1_000_000)
		i += 7919
	}
}

// BenchmarkPut is a whole put and its removal, prepared and applied, a thousand
// to a commit.
func BenchmarkPut(b *testing.B) {
	s, _ := fill(b, 100_000)
	p := s.Position()
	seq, now := p.Seq, p.Time
	commit := func(changes ...metadata.Change) {
		seq++
		now++
		if _, err := s.Apply(&metadata.Commit{Seq: seq, Term: 1, Time: now, Changes: changes}, nil); err != nil {
			b.Fatal(err)
		}
	}
	const batch = 1000
	names := make([]string, batch)
	for i := range names {
		names[i] = benchKey(1<<30 + i)
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if n%batch != 0 {
			continue
		}
		var starts, ends, removes []metadata.Change
		for _, name := range names {
			e, _, _, err := s.PreparePutStart(&metadata.Put{Tenant: "default", Key: name, Client: client(1), Size: 4096, Replicas: 1}, now)
			if err != nil {
				b.Fatal(err)
			}
			starts = append(starts, e)
		}
		commit(starts...)
		for _, name := range names {
			e, _, err := s.PreparePutEnd(metadata.PutRef{Tenant: "default", Key: name, Client: client(1), Selector: metadata.SelectMemory}, nil)
			if err != nil {
				b.Fatal(err)
			}
			ends = append(ends, e)
		}
		commit(ends...)
		for _, name := range names {
			e, _, err := deleteevents.Prepare(s, deleteevents.Request{Tenant: "default", Key: name}, now)
			if err != nil {
				b.Fatal(err)
			}
			removes = append(removes, e)
		}
		commit(removes...)
	}
}
