package metadata_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/metadata"
)

func upsert(p *metadata.Put) { p.Upsert = true }

func size(n uint64) func(*metadata.Put) { return func(p *metadata.Put) { p.Size = n } }

func onDisk(p *metadata.Put) { p.DiskPath = "/d/" + p.Key }

// fileOf names the disk replica of the newest put of a key, as its writer does.
func fileOf(c *cluster, key string) metadata.PutRef {
	ref := c.putRef(key)
	ref.Selector = metadata.SelectDisk
	return ref
}

func by(n byte) func(*metadata.Put) { return func(p *metadata.Put) { p.Client = client(n) } }

func (c *cluster) inspect(key string) metadata.Object {
	c.t.Helper()
	o, err := c.primary.Inspect(metadata.DefaultTenant, key)
	if err != nil {
		c.t.Fatalf("inspecting %s: got %v, want no error", key, err)
	}
	return o
}

// An upsert gets the memory of the old object only if nobody may read or write there any more.
// Otherwise that memory waits in quarantine as long as necessary.
func TestWhereUpsertsGo(t *testing.T) {
	const slack = 22 // ms: what a lease of 10 s is honoured longer than its reader knows
	for name, tc := range map[string]struct {
		before      func(c *cluster)
		options     []func(*metadata.Put)
		inPlace     bool
		quarantined time.Duration // how long the memory before is given to nobody; 0 for not at all
	}{
		"nobody has read it":                       {inPlace: true},
		"another client's":                         {options: []func(*metadata.Put){by(2)}, inPlace: true},
		"without request ids":                      {options: []func(*metadata.Put){unnumbered}, inPlace: true},
		"another size":                             {options: []func(*metadata.Put){size(99)}},
		"a live lease":                             {before: func(c *cluster) { c.read("k") }, quarantined: 10*time.Second + slack*time.Millisecond},
		"a lease in its slack":                     {before: func(c *cluster) { c.read("k"); c.pass(10*time.Second + 1) }, quarantined: slack * time.Millisecond},
		"a lease that has ended":                   {before: func(c *cluster) { c.read("k"); c.pass(10*time.Second + slack*time.Millisecond) }, inPlace: true},
		"another size, and leased":                 {before: func(c *cluster) { c.read("k") }, options: []func(*metadata.Put){size(99)}, quarantined: 10*time.Second + slack*time.Millisecond},
		"leases that only the primary before knew": {before: func(c *cluster) { c.takeOver(params.HoldTime()) }, quarantined: params.HoldTime()},
		"an upsert in progress":                    {before: func(c *cluster) { c.must([]error{c.putStart("k", upsert, by(3))}) }, quarantined: 600 * time.Second},
		"an own one":                               {before: func(c *cluster) { c.must([]error{c.putStart("k", upsert)}) }, quarantined: 600 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.mount(1, "a", 1<<10)
			c.put("k")
			if tc.before != nil {
				tc.before(c)
			}
			old := c.inspect("k")
			if err := c.putStart("k", append(tc.options, upsert)...); err != nil {
				t.Fatal(err)
			}
			now := c.inspect("k")
			if got := now.Replicas[0].Address == old.Replicas[0].Address; got != tc.inPlace {
				t.Errorf("in place: got %v, want %v", got, tc.inPlace)
			}
			_, err := c.get("k")
			wantKind(t, "reading before the end", err, errs.ReplicaNotReady)
			busy := uint64(104)
			if !tc.inPlace && tc.quarantined > 0 {
				busy = 208
			}
			if st := c.primary.Stats(); st.Busy != busy || st.Objects != 1 {
				t.Errorf("got %d bytes busy and %d objects, want %d and 1", st.Busy, st.Objects, busy)
			}
			if tc.quarantined > 0 {
				c.pass(tc.quarantined - time.Millisecond)
				c.commit()
				if st := c.primary.Stats(); st.Quarantined != 104 {
					t.Errorf("just before its time: got %d bytes in quarantine, want 104", st.Quarantined)
				}
				c.pass(time.Millisecond)
				c.commit()
			}
			if st := c.primary.Stats(); st.Quarantined != 0 {
				t.Errorf("after its time: got %d bytes in quarantine, want none", st.Quarantined)
			}
			ref := c.putRef("k")
			ref.Client = now.Client
			late := ref
			late.ID = old.ID
			wantKind(t, "the end of the put before", c.putEndAs(late), errs.ObjectNotFound)
			c.must([]error{c.putEndAs(ref)})
			for what, s := range c.everywhere() {
				if list, _, err := leases(s).GetReplicaList("default", "k", c.now); err != nil || list.ID != now.ID || list.Size != now.Size {
					t.Errorf("%s: got %+v, %v; want object %v", what, list, err, now.ID)
				}
			}
		})
	}
}

// What an upsert answers, and what it takes over.
func TestUpsertAnswers(t *testing.T) {
	group := func(p *metadata.Put) { p.Group = "g" }
	request := func(p *metadata.Put) { p.Request = 7 }
	for name, tc := range map[string]struct {
		before  func(c *cluster)
		options []func(*metadata.Put)
		want    errs.Kind
	}{
		"no object":             {},
		"an object":             {before: func(c *cluster) { c.put("k") }},
		"a put in progress":     {before: func(c *cluster) { _ = c.putStart("k", by(2)) }},
		"its own, numbered":     {before: func(c *cluster) { _ = c.putStart("k", request) }},
		"its own, not numbered": {before: func(c *cluster) { _ = c.putStart("k", unnumbered) }, options: []func(*metadata.Put){unnumbered}, want: errs.ReplicaBusy},
		"its own, that failed":  {before: func(c *cluster) { _ = c.putStart("k"); _ = c.revokeAs(c.putRef("k")) }, options: []func(*metadata.Put){unnumbered}},
		"its own, an old one":   {before: func(c *cluster) { _ = c.putStart("k"); c.pass(30 * time.Second) }, options: []func(*metadata.Put){unnumbered}},
		"its own, never answered": {
			before:  func(c *cluster) { _ = c.putStart("k"); c.primary.Abandon("default", "k", c.inspect("k").ID) },
			options: []func(*metadata.Put){unnumbered},
		},
		"its own disk replica is being written": {
			before:  func(c *cluster) { c.put("k", onDisk) },
			options: []func(*metadata.Put){unnumbered},
		},
		"its own file is done before its memory": {
			before: func(c *cluster) {
				_ = c.putStart("k", onDisk)
				c.must([]error{c.putEndAs(fileOf(c, "k"))})
			},
			options: []func(*metadata.Put){unnumbered}, want: errs.ReplicaBusy,
		},
		"the call that made the object": {before: func(c *cluster) { c.put("k", request) }, options: []func(*metadata.Put){request}, want: errs.ObjectExists},
		"another group":                 {before: func(c *cluster) { c.put("k") }, options: []func(*metadata.Put){group}, want: errs.InvalidParams},
		"its group":                     {before: func(c *cluster) { c.put("k", group) }, options: []func(*metadata.Put){group}},
		"a client copies the object": {
			before: func(c *cluster) {
				c.put("k")
				c.primary.BeginCopy(metadata.OffloadSource{Ref: c.refOf("k"), Client: client(1)}, c.now.Add(time.Second))
			},
			want: errs.ObjectHasTask,
		},
		"a copy is under way": {
			before: func(c *cluster) {
				c.mount(2, "b", 1<<10)
				c.put("k", func(p *metadata.Put) { p.Preferred = []string{"a"} })
				e, _, err := c.primary.PrepareTransfer(&metadata.Transfer{Tenant: "default", Key: "k", Client: client(1), Source: "a", Targets: []string{"b"}})
				if err != nil {
					c.t.Fatalf("preparing a copy: got %v, want no error", err)
				}
				c.must(c.commit(e))
			},
			want: errs.ObjectHasTask,
		},
		"a client never said that it copied": {
			before: func(c *cluster) {
				c.put("k")
				c.primary.BeginCopy(metadata.OffloadSource{Ref: c.refOf("k"), Client: client(1)}, c.now)
			},
		},
		"no room":               {before: func(c *cluster) { c.put("k") }, options: []func(*metadata.Put){size(1 << 20)}, want: errs.NoAvailableHandle},
		"all is full, in place": {before: func(c *cluster) { c.put("k"); c.put("x", size(800)) }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.mount(1, "a", 1<<10)
			if tc.before != nil {
				tc.before(c)
			}
			was := c.primary.Position().Digest
			err := c.putStart("k", append(tc.options, upsert)...)
			wantKind(t, "the upsert", err, tc.want)
			if err != nil && c.primary.Position().Digest != was {
				t.Errorf("the upsert was refused: got the digest %v, want %v as before", c.primary.Position().Digest, was)
			}
		})
	}
}

// The PutEnd of a file names only the key and the client. A late one must not complete the file
// of an upsert by the same client.
func TestLateEndsOfFiles(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(c *cluster) // behind a put of client 1 with a file
		option func(*metadata.Put)
		file   bool // whether the upsert has one
	}{
		"a file that is being written":  {option: unnumbered},
		"one that is said to be":        {before: func(c *cluster) { c.must([]error{c.putEndAs(fileOf(c, "k"))}) }, option: unnumbered},
		"of an upsert before":           {before: func(c *cluster) { c.put("k", upsert, unnumbered, onDisk) }, option: unnumbered},
		"of an upsert before, failover": {before: func(c *cluster) { c.put("k", upsert, unnumbered, onDisk); c.takeOver(0) }, option: unnumbered},
		"long after":                    {before: func(c *cluster) { c.pass(params.DiscardTimeout) }, option: unnumbered, file: true},
		"another client":                {option: func(p *metadata.Put) { p.Unnumbered, p.Client = true, client(2) }, file: true},
		"with object ids":               {option: func(*metadata.Put) {}, file: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.mount(1, "a", 1<<10)
			c.put("k", onDisk)
			if tc.before != nil {
				tc.before(c)
			}
			c.must([]error{c.putStart("k", upsert, onDisk, tc.option)})
			got := c.inspect("k").Replicas
			if file := len(got) == 2 && got[1].Kind == metadata.Disk; file != tc.file {
				t.Fatalf("got replicas %+v, want a file among them: %v", got, tc.file)
			}
			if !tc.file {
				wantKind(t, "a late end of a file", c.putEndAs(fileOf(c, "k")), errs.InvalidWrite)
				_, err := c.get("k")
				wantKind(t, "the upsert", err, errs.ReplicaNotReady)
			}
		})
	}
}

// Only the rules that know upserts let them replace a readable object.
func TestUpsertsUnderOlderRules(t *testing.T) {
	c := &cluster{t: t, primary: metadata.New(metadata.Options{}), follower: metadata.New(metadata.Options{}), now: 1000, term: 1}
	c.primary.StartIDs(1)
	c.must(c.commit(&metadata.TermStart{Term: 1, Params: params}, &metadata.UseRules{Version: 4}))
	c.mount(1, "a", 1000)
	c.must([]error{c.putStart("k"), c.putStart("k", upsert)})
	c.must([]error{c.putEnd("k")})
	wantKind(t, "a readable object", c.putStart("k", upsert), errs.Unavailable)
	c.must(c.commit(&metadata.UseRules{Version: metadata.NewestRules}))
	c.must([]error{c.putStart("k", upsert)})
}

// A put whose memory was unmounted before its commit fails and replaces nothing, not even another
// client's reservation, whose writer still writes. Under older rules it did.
func TestPutWithoutMemoryReplacesNothing(t *testing.T) {
	for rules, want := range map[metadata.Rules]errs.Kind{7: errs.ObjectNotFound, metadata.NewestRules: errs.OK} {
		c := &cluster{t: t, primary: metadata.New(metadata.Options{}), follower: metadata.New(metadata.Options{}), now: 1000, term: 1}
		c.primary.StartIDs(1)
		c.must(c.commit(&metadata.TermStart{Term: 1, Params: params}, &metadata.UseRules{Version: rules}))
		c.mount(1, "a", 1000)
		c.must([]error{c.putStart("k")})
		first := c.putRef("k")
		gone := c.mount(2, "b", 1000)
		e, err := c.preparePut("k", upsert, func(p *metadata.Put) { p.Preferred = []string{"b"} })
		if err != nil {
			t.Fatal(err)
		}
		c.unmount(gone)
		wantKind(t, "an upsert without memory", c.commit(e)[0], errs.NoAvailableHandle)
		if got := errs.KindOf(c.putEndAs(first)); got != want {
			t.Errorf("rules %d: the end of the put before: got %v, want %v", rules, got, want)
		}
		c.everywhere()
	}
}

// Pins and the group stay with the key. A checksum does not, nor do copies on disks.
func TestWhatUpsertsKeep(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.mount(2, "b", 1<<20)
	c.mountDisk(1, true)
	c.put("k", softPin, hardPin, func(p *metadata.Put) { p.Group, p.Replicas = "g", 2 })
	if err := c.copyTo(1, "k"); err != nil {
		t.Fatal(err)
	}
	before := c.inspect("k")
	c.pass(10 * time.Minute)
	c.put("k", upsert, func(p *metadata.Put) { p.KeepSoftPin = true })
	after := c.inspect("k")
	if !after.HardPin || !after.SoftPin || after.Group != "g" || len(after.Replicas) != 2 {
		t.Errorf("got %+v, want both pins, the group, and the two replicas in memory alone", after)
	}
	for i := range after.Replicas {
		if !slices.ContainsFunc(before.Replicas, func(r metadata.Descriptor) bool { return r.Address == after.Replicas[i].Address }) {
			t.Errorf("an upsert in the same size: got the replica %+v, want one of those before: %+v",
				after.Replicas[i], before.Replicas)
		}
	}
	copied, _, err := c.primary.PrepareOffloaded(metadata.Offloaded{
		Tenant: "default", Key: "k", ID: before.ID, Client: client(1), Number: 3, Size: 100, Endpoint: "x",
	})
	if copied != nil || errs.KindOf(err) != errs.ObjectNotFound {
		t.Errorf("a late report of a copy of the object before: got %v, %v; want that it is not found", copied, err)
	}
	c.pass(19 * time.Minute)
	if !c.inspect("k").SoftPin {
		t.Error("29 minutes after the put: got the soft pin ended, want it to last for 30")
	}
	c.pass(2 * time.Minute)
	c.commit()
	if c.inspect("k").SoftPin {
		t.Error("31 minutes after the put: got the object soft-pinned, want the pin it kept ended after 30")
	}
}

// Whatever happens to the old object or to the upsert, no byte is lost or given out twice.
func TestUpsertsThatAreCutShort(t *testing.T) {
	for name, run := range map[string]func(c *cluster, e *metadata.PutStart){
		"taken back":     func(c *cluster, e *metadata.PutStart) { e.Abort(c.primary) },
		"segment gone":   func(c *cluster, e *metadata.PutStart) { c.unmount(c.primary.Segments()[0].ID); c.commit(e) },
		"revoked":        func(c *cluster, e *metadata.PutStart) { c.commit(e); _ = c.revokeAs(c.putRef("k")) },
		"never finished": func(c *cluster, e *metadata.PutStart) { c.commit(e) },
		"a takeover":     func(c *cluster, e *metadata.PutStart) { c.commit(e); c.takeOver(params.HoldTime()) },
		"an eviction pass meanwhile": func(c *cluster, e *metadata.PutStart) {
			c.evict(eviction.Bounds{Objects: 5})
			c.must(c.commit(e))
			c.must([]error{c.putEnd("k")})
		},
	} {
		for _, inPlace := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " in place ", inPlace), func(t *testing.T) {
				c := newCluster(t)
				c.mount(1, "a", 1<<10)
				c.put("k")
				c.pass(time.Second)
				c.commit()
				if !inPlace {
					c.read("k")
				}
				e, err := c.preparePut("k", upsert)
				if err != nil || e.InPlace != inPlace {
					t.Fatalf("got %+v, %v; want an upsert in place: %v", e, err, inPlace)
				}
				run(c, e)
				if name == "revoked" || name == "segment gone" {
					_, err := c.get("k")
					wantKind(t, "the key", err, errs.ObjectNotFound)
				}
				c.pass(601 * time.Second)
				for _, e := range c.primary.PrepareDiscards(c.now, 10) {
					c.commit(e)
				}
				c.commit()
				want := uint64(0)
				if o, err := c.primary.Inspect("default", "k"); err == nil {
					want = 104 * uint64(len(o.Replicas))
				}
				if st := c.primary.Stats(); st.Busy != want {
					t.Errorf("in the end %d bytes are busy, want %d", st.Busy, want)
				}
				c.everywhere()
			})
		}
	}
}

func (c *cluster) refOf(key string) metadata.Ref {
	e := c.primary.Lock(metadata.DefaultTenant, key)
	defer e.Unlock()
	return e.Ref()
}

// A caller that lost its answer in a failover repeats the call and gets the same
// reservation; its end, repeated, is no error, and ends nothing else.
func TestUpsertsOverAFailover(t *testing.T) {
	for _, inPlace := range []bool{true, false} {
		t.Run(fmt.Sprint("in place ", inPlace), func(t *testing.T) {
			c := newCluster(t)
			c.mount(1, "a", 1<<10)
			c.put("k")
			if !inPlace {
				c.read("k")
			}
			numbered := func(p *metadata.Put) { p.Upsert, p.Request = true, 7 }
			c.must([]error{c.putStart("k", numbered)})
			made := c.inspect("k")
			c.takeOver(params.HoldTime())
			put := &metadata.Put{Tenant: metadata.DefaultTenant, Key: "k", Client: client(1), Size: 100, Replicas: 1}
			numbered(put)
			e, repeated, _, err := c.primary.PreparePutStart(put, c.now)
			if e != nil || err != nil || repeated == nil || repeated.ID != made.ID || repeated.Replicas[0] != made.Replicas[0] {
				t.Fatalf("repeated: got %+v, %+v, %v; want the reservation %+v", e, repeated, err, made)
			}
			ref := c.putRef("k")
			ref.ID = made.ID
			c.must([]error{c.putEndAs(ref)})
			c.takeOver(params.HoldTime())
			wantKind(t, "the end, repeated", c.putEndAs(ref), errs.OK)
			c.must([]error{c.putStart("k", upsert, by(2))})
			wantKind(t, "the end, repeated behind another upsert", c.putEndAs(ref), errs.ObjectNotFound)
			_, err = c.get("k")
			wantKind(t, "the other upsert", err, errs.ReplicaNotReady)
		})
	}
}

// A closed segment keeps its objects, and takes no upserts.
func TestUpsertsLeaveClosedSegments(t *testing.T) {
	c := newCluster(t)
	id := c.mount(1, "a", 1<<10)
	c.put("k")
	e, err := c.primary.PrepareClose(client(1), id, c.now.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	c.must(c.commit(e))
	wantKind(t, "without another segment", c.putStart("k", upsert), errs.NoAvailableHandle)
	for i, name := range []string{"a", "b"} { // one of the same name, and of another one
		n := byte(i + 2)
		other := c.mount(n, name, 1<<10)
		c.put("k", upsert)
		if got := c.inspect("k").Replicas[0]; got.Segment != name || got.Address < uint64(n)<<32 {
			t.Errorf("the upsert went to %s at %#x, want segment %d, %s", got.Segment, got.Address, n, name)
		}
		e, err := c.primary.PrepareClose(client(n), other, c.now.Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		c.must(c.commit(e))
	}
	c.unmount(id)
	c.everywhere()
	if _, err := c.get("k"); err != nil {
		t.Errorf("behind the unmount: got %v, want the object", err)
	}
}
