package metadata_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/metadata"
)

// mountDisk mounts the SSD of client n, or changes its flag.
func (c *cluster) mountDisk(n byte, offloading bool) {
	c.t.Helper()
	if e := c.primary.PrepareMountLocalDisk(client(n), offloading); e != nil {
		c.must(c.commit(e))
	}
}

func (c *cluster) unmountDisk(n byte) {
	c.t.Helper()
	info, ok := c.primary.FindLocalDisk(client(n))
	if !ok {
		c.t.Fatalf("client %d: got no SSD, want one", n)
	}
	c.must(c.commit(&metadata.UnmountLocalDisk{Number: info.Number}))
}

// copyTo says that client n has copied an object of 100 bytes to its SSD.
func (c *cluster) copyTo(n byte, key string, options ...func(*metadata.Offloaded)) error {
	c.t.Helper()
	info, _ := c.primary.FindLocalDisk(client(n))
	object, _ := c.primary.Inspect(metadata.DefaultTenant, key)
	o := metadata.Offloaded{
		Tenant: metadata.DefaultTenant, Key: key, ID: object.ID, Client: client(n), Number: info.Number, Size: 100, Endpoint: fmt.Sprintf("ssd-%d:1", n),
	}
	for _, option := range options {
		option(&o)
	}
	e, wait, err := c.primary.PrepareOffloaded(o)
	if wait != nil {
		c.t.Fatalf("reporting a copy of %s: got that the key is busy, want not", key)
	}
	if e == nil {
		return err
	}
	return c.commit(e)[0]
}

// replicas returns the kinds of an object's replicas, with owner and endpoint of those on SSDs.
func (c *cluster) replicas(key string) (list []string) {
	c.t.Helper()
	o, err := c.primary.Inspect(metadata.DefaultTenant, key)
	if err != nil {
		return []string{errs.KindOf(err).String()}
	}
	for _, r := range o.Replicas {
		text := r.Kind.String()
		if r.Kind == metadata.LocalDisk {
			text = fmt.Sprintf("%s %d at %s, %d bytes", text, r.Client[15], r.Endpoint, r.Size)
		}
		list = append(list, text)
	}
	return list
}

func (c *cluster) wantReplicas(what, key string, want ...string) {
	c.t.Helper()
	if got := c.replicas(key); !slices.Equal(got, want) {
		c.t.Fatalf("%s: %s has %q, want %q", what, key, got, want)
	}
}

func TestCopiesOnSSDs(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.must([]error{c.putStart("other"), c.putStart("open")})
	c.mount(2, "b", 1<<20)
	c.must([]error{c.putStart("k", func(p *metadata.Put) { p.Replicas = 2 })})
	c.must([]error{c.putEnd("k"), c.putEnd("other")})
	wantKind(t, "a copy without an SSD", c.commit(&metadata.AddLocalDisk{Number: 1})[0], errs.ObjectNotFound)
	wantKind(t, "a copy on an SSD that is a segment", c.copyTo(1, "k", func(o *metadata.Offloaded) { o.Number = 1 }), errs.SegmentNotFound)
	c.mountDisk(1, true)
	c.mountDisk(2, false)
	for what, tc := range map[string]struct {
		key    string
		change func(*metadata.Offloaded)
		want   errs.Kind
	}{
		"an object that is gone":      {"gone", func(*metadata.Offloaded) {}, errs.ObjectNotFound},
		"an object that was put anew": {"k", func(o *metadata.Offloaded) { o.ID = 1 }, errs.ObjectNotFound},
		"another size":                {"k", func(o *metadata.Offloaded) { o.Size = 99 }, errs.InvalidParams},
		"a put in progress":           {"open", func(*metadata.Offloaded) {}, errs.ReplicaNotReady},
	} {
		wantKind(t, what, c.copyTo(1, tc.key, tc.change), tc.want)
	}
	at := c.seq
	c.must([]error{c.copyTo(1, "k"), c.copyTo(1, "k"), c.copyTo(2, "k")})
	if c.seq != at+2 {
		t.Errorf("two copies, one of them reported twice: got %d commits, want 2", c.seq-at)
	}
	before := c.primary.Position().Digest
	c.must([]error{c.copyTo(2, "k", func(o *metadata.Offloaded) { o.Endpoint = "moved:1" })})
	if c.primary.Position().Digest == before {
		t.Error("a copy has another endpoint: got the same digest, want another one (S)")
	}
	ssd1, ssd2 := "LOCAL_DISK 1 at ssd-1:1, 100 bytes", "LOCAL_DISK 2 at moved:1, 100 bytes"
	c.wantReplicas("copied", "k", "MEMORY", "MEMORY", ssd1, ssd2)

	c.pass(time.Second)
	c.commit()
	if n := c.evict(eviction.Bounds{Objects: 10}); n != 2 {
		t.Fatalf("%d objects evicted, want 2", n)
	}
	c.wantReplicas("evicted", "k", ssd1, ssd2)
	c.wantReplicas("evicted", "other", "OBJECT_NOT_FOUND")
	if list, err := c.get("k"); err != nil || len(list.Replicas) != 2 || list.LeaseTTL == 0 {
		t.Errorf("reading an object that is on SSDs alone: got %+v, %v, want two replicas and a lease", list, err)
	}
	c.takeOver(params.HoldTime())
	c.wantReplicas("after a failover", "k", ssd1, ssd2)
	if list := c.primary.LocalDisks(); len(list) != 2 || list[0].Client != client(1) || !list[0].Offloading || list[1].Offloading {
		t.Errorf("after a failover: got the SSDs %+v, want those of both clients, with the first one offloading", list)
	}
	c.unmountDisk(1)
	c.wantReplicas("one SSD is gone", "k", ssd2)
	c.mountDisk(1, true)
	c.wantReplicas("mounted again, without its files", "k", ssd2)
	c.unmountDisk(2)
	c.wantReplicas("all are gone", "k", "OBJECT_NOT_FOUND")
	for c.primary.Sweep(metadata.ShardCount) {
	}
	if st := c.primary.Stats(); st.LocalReplicas != 0 || st.LocalDisks != 1 || st.Objects != 1 {
		t.Errorf("after the sweep: got %+v, want no replica on an SSD, 1 SSD and 1 object", st)
	}
	c.put("k") // the key is free again
}

func TestOffloadingFlag(t *testing.T) {
	c := newCluster(t)
	if _, err := c.primary.PrepareSetOffloading(client(1), true); errs.KindOf(err) != errs.SegmentNotFound {
		t.Errorf("setting the flag without an SSD: got %v, want SegmentNotFound", err)
	}
	c.mountDisk(1, false)
	number := c.primary.LocalDisks()[0].Number
	if e, err := c.primary.PrepareSetOffloading(client(1), false); e != nil || err != nil {
		t.Errorf("setting the flag as it is: got %v, %v, want no change and no error", e, err)
	}
	for _, on := range []bool{true, false} {
		before := c.primary.Position().Digest
		e, err := c.primary.PrepareSetOffloading(client(1), on)
		if err != nil {
			t.Fatal(err)
		}
		c.must(c.commit(e))
		if info, _ := c.primary.FindLocalDisk(client(1)); info.Offloading != on || info.Number != number {
			t.Errorf("after setting the flag to %v: got the SSD %+v, want that flag, and number %d", on, info, number)
		}
		if c.primary.Position().Digest == before {
			t.Errorf("after setting the flag to %v: got the same digest, want another one (S)", on)
		}
	}
	c.mountDisk(1, true)
	if info, _ := c.primary.FindLocalDisk(client(1)); !info.Offloading || info.Number != number {
		t.Errorf("mounted once more: got the SSD %+v, want it offloading, with number %d", info, number)
	}
	c.unmountDisk(1)
	for _, late := range []metadata.Change{&metadata.SetOffloading{Number: number}, &metadata.UnmountLocalDisk{Number: number}} {
		wantKind(t, fmt.Sprintf("%T of an SSD that is gone", late), c.commit(late)[0], errs.SegmentNotFound)
	}
	c.mountDisk(1, true)
	wantKind(t, "the number is given anew", c.commit(&metadata.UnmountLocalDisk{Number: number})[0], errs.SegmentNotFound)
}

func TestOffloadSources(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.mount(2, "b", 1<<20)
	c.put("k", func(p *metadata.Put) { p.Replicas = 2 })
	_ = c.putStart("open")
	sources := func() (list []metadata.OffloadSource) {
		for shard := range metadata.ShardCount {
			list = c.primary.ShardOffloadSources(list, shard)
		}
		for _, source := range list {
			if !slices.Contains(c.primary.OffloadSources(nil, source.Ref), source) {
				t.Errorf("got the source %+v of a shard, want it among those of its object", source)
			}
		}
		return list
	}
	all := sources()
	if len(all) != 2 || all[0].Ref != all[1].Ref {
		t.Fatalf("got the sources %+v, want the two replicas of one object", all)
	}
	for _, source := range all {
		key, size, ok := c.primary.BeginCopy(source, 0)
		if !ok || size != 100 || key != (metadata.ObjectKey{Tenant: metadata.DefaultTenant, Key: "k"}) {
			t.Errorf("the object of %+v: got %v of %d bytes, %v, want key k of 100 bytes", source, key, size, ok)
		}
	}
	c.mountDisk(1, true)
	c.must([]error{c.copyTo(1, "k")})
	left := sources()
	if len(left) != 1 || left[0].Client != client(2) {
		t.Errorf("client 1 has a copy: got the sources %+v, want only that of client 2", left)
	}
	c.must([]error{c.remove("k", true)})
	if _, _, ok := c.primary.BeginCopy(left[0], 0); ok || len(sources()) != 0 {
		t.Errorf("an object that is gone: got that a copy begins: %v, want no copy, and no sources", ok)
	}
}

// An object has a bounded number of copies, so that no snapshot is refused.
func TestCopiesAreBounded(t *testing.T) {
	c := newCluster(t)
	for n := byte(1); n <= metadata.MaxReplicas; n++ {
		c.mount(n, fmt.Sprint("s", n), 1<<20)
	}
	c.put("k", func(p *metadata.Put) { p.Replicas = metadata.MaxReplicas })
	o, _ := c.primary.Inspect(metadata.DefaultTenant, "k")
	ref := metadata.Ref{Shard: shardWith(c, o.ID), ID: o.ID}
	for n := byte(1); n <= metadata.MaxReplicas; n++ {
		c.mountDisk(n, true)
		c.must([]error{c.copyTo(n, "k")})
	}
	const more = metadata.MaxReplicas + 1
	c.mountDisk(more, true)
	wantKind(t, "one copy more", c.copyTo(more, "k"), errs.InvalidParams)
	info, _ := c.primary.FindLocalDisk(client(more))
	wantKind(t, "one copy more in the journal", c.commit(&metadata.AddLocalDisk{Ref: ref, Number: info.Number})[0], errs.InvalidParams)
	c.must([]error{c.copyTo(1, "k", func(o *metadata.Offloaded) { o.Endpoint = "moved:1" })})
	if _, err := c.load(c.snapshot()); err != nil {
		t.Error(err)
	}
}

// shardWith returns the shard that an object is in.
func shardWith(c *cluster, id metadata.ObjectID) uint16 {
	c.t.Helper()
	for shard := range metadata.ShardCount {
		for _, source := range c.primary.ShardOffloadSources(nil, shard) {
			if source.ID == id {
				return source.Shard
			}
		}
	}
	c.t.Fatalf("object %v: got no shard with a source of it, want one", id)
	return 0
}

// An SSD that is gone leaves nothing behind in a snapshot.
func TestSnapshotWithoutSSDs(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	plain, _ := c.primary.AppendSnapshotPart(nil, 0)
	c.mountDisk(1, true)
	with, _ := c.primary.AppendSnapshotPart(nil, 0)
	c.unmountDisk(1)
	after, _ := c.primary.AppendSnapshotPart(nil, 0)
	if len(with) != len(plain)+1+16+3 || len(after) != len(plain) {
		t.Errorf("got a snapshot part of %d bytes, with an SSD of %d, and without it again of %d; want 20 more, then as before",
			len(plain), len(with), len(after))
	}
}

// Snapshots with broken SSDs are refused even without the check of the digest, which would
// refuse all of them.
func TestSnapshotsWithBrokenSSDs(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20) // number 1
	c.mountDisk(1, true)   // number 2
	c.put("k")
	c.must([]error{c.copyTo(1, "k")})
	whole := c.snapshot()
	at := slices.IndexFunc(whole, func(part []byte) bool { return bytes.Contains(part, []byte("ssd-1:1")) })
	local := func(number, status byte) []byte {
		return append([]byte{byte(metadata.LocalDisk), status, number, 7}, "ssd-1:1"...)
	}
	good := local(2, byte(metadata.Complete))
	if !bytes.Contains(whole[at], good) {
		t.Fatalf("part %d: got %q, want the bytes in it that this test replaces", at, whole[at])
	}
	replica := func(becomes ...byte) func([][]byte) {
		return func(p [][]byte) { p[at] = bytes.Replace(p[at], good, becomes, 1) }
	}
	disk := func(number byte) []byte {
		id := client(1)
		return append(append([]byte{number}, id[:]...), 1, 0, 0)
	}
	disks := func(count byte, list ...[]byte) func([][]byte) {
		return func(p [][]byte) {
			plain := p[0][:len(p[0])-21]
			p[0] = append(append(plain, count), bytes.Join(list, nil)...)
		}
	}
	other := disk(1)
	other[16] = 2
	for name, change := range map[string]func([][]byte){
		"a replica in progress":  replica(local(2, byte(metadata.Processing))...),
		"a replica on a segment": replica(local(1, byte(metadata.Complete))...),
		"a replica on nothing":   replica(local(9, byte(metadata.Complete))...),
		"two replicas on an SSD": func(p [][]byte) {
			p[at] = bytes.Replace(p[at], []byte{2, 1, 2, 1, 0}, []byte{3, 1, 2, 1, 0}, 1)
			p[at] = bytes.Replace(p[at], good, append(bytes.Clone(good), good...), 1)
		},
		"no replica's endpoint":          replica(good[:3]...),
		"the memory on an SSD":           func(p [][]byte) { p[at] = bytes.Replace(p[at], []byte{2, 1, 2, 1, 0}, []byte{2, 1, 2, 2, 0}, 1) },
		"the memory on nothing":          func(p [][]byte) { p[at] = bytes.Replace(p[at], []byte{2, 1, 2, 1, 0}, []byte{2, 1, 2, 9, 0}, 1) },
		"an SSD with a segment's number": disks(2, disk(2), other),
		"an SSD with a later number":     disks(1, disk(3)),
		"an SSD without a number":        disks(1, disk(0)),
		"an SSD twice":                   disks(2, disk(2), disk(2)),
		"fewer than it says":             disks(2, disk(2)),
		"more than it says":              disks(1, disk(2), disk(2)),
	} {
		if err := loadUnchecked(whole, change); err == nil {
			t.Errorf("%s: got the snapshot loaded, want it refused", name)
		}
	}
	if err := loadUnchecked(whole, disks(1, disk(2))); err != nil {
		t.Errorf("the whole snapshot: got %v, want it loaded", err)
	}
	c.unmountDisk(1)
	if err := loadUnchecked(c.snapshot(), func(p [][]byte) { p[0] = append(p[0], 0) }); err == nil {
		t.Error("a list of no SSDs: got the snapshot loaded, want it refused")
	}
}

// loadUnchecked loads a copy of a snapshot that change has changed.
func loadUnchecked(whole [][]byte, change func([][]byte)) error {
	parts := make([][]byte, len(whole))
	for i := range whole {
		parts[i] = bytes.Clone(whole[i])
	}
	change(parts)
	l := metadata.NewLoader(metadata.Options{})
	for _, part := range parts {
		if err := l.Add(part); err != nil {
			return err
		}
	}
	_, err := l.FinishUnchecked()
	return err
}

func TestTermThatStartsEmptyHasNoSSDs(t *testing.T) {
	c := newCluster(t)
	c.mountDisk(1, true)
	empty := &metadata.TermStart{Term: 2, Params: params, Empty: true}
	if _, err := c.primary.Apply(&metadata.Commit{Seq: c.seq + 1, Term: 2, Time: c.now, Changes: []metadata.Change{empty}}, nil); err == nil {
		t.Error("a term that starts empty, on a store with an SSD: got no error, want it refused")
	}
}

// A copy counts only if its object is still in the client's memory: after an eviction the bytes
// may have been overwritten before they were copied. The change checks again when it is applied,
// since an eviction may come in between.
func TestCopyOfWhatWasEvicted(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.mount(2, "b", 1<<20)
	c.mountDisk(1, true)
	c.mountDisk(2, true)
	c.put("k", func(p *metadata.Put) { p.Replicas = 2 })
	c.must([]error{c.copyTo(2, "k")})
	o, _ := c.primary.Inspect(metadata.DefaultTenant, "k")
	disk, _ := c.primary.FindLocalDisk(client(1))
	late := &metadata.AddLocalDisk{Ref: metadata.Ref{Shard: shardWith(c, o.ID), ID: o.ID}, Number: disk.Number, Endpoint: "ssd-1:1"}
	wantKind(t, "a copy that says nothing of its object", c.copyTo(1, "k", func(o *metadata.Offloaded) { o.ID = 0 }), errs.ObjectNotFound)
	c.pass(time.Second)
	c.commit()
	c.evict(eviction.Bounds{Objects: 1})
	wantKind(t, "a late copy", c.copyTo(1, "k"), errs.ReplicaNotReady)
	wantKind(t, "a late copy in the journal", c.commit(late)[0], errs.ReplicaNotReady)
	c.must([]error{c.copyTo(2, "k", func(o *metadata.Offloaded) { o.Endpoint = "moved:1" })})
	c.wantReplicas("in the end", "k", "LOCAL_DISK 2 at moved:1, 100 bytes")
}

// A copy is refused, however late it comes, if its object has left the client's memory since the
// task was handed out: others may have got that memory before the client read it. It does not
// help that the object is in other memory of the client by now.
func TestCopyOfWhatLeftItsMemory(t *testing.T) {
	move := func(by byte, from, to string) func(c *cluster) {
		return func(c *cluster) {
			m := transferOf(moving, func(t *metadata.Transfer) { t.Client, t.Source, t.Targets = client(by), from, []string{to} })
			c.start(m)
			if _, err := c.endTransfer(m, true); err != nil {
				c.t.Fatalf("ending a move from %s to %s: got %v, want no error", from, to, err)
			}
		}
	}
	copied := func(complete bool) func(c *cluster) {
		return func(c *cluster) {
			m := transferOf(func(t *metadata.Transfer) { t.Source, t.Targets = "c", []string{"b"} })
			c.start(m)
			if _, err := c.endTransfer(m, complete); err != nil {
				c.t.Fatalf("ending a copy from c to b, complete: %v: got %v, want no error", complete, err)
			}
		}
	}
	clear := func(c *cluster) {
		drop, _ := c.primary.PrepareClear("default", "k", client(1), "a", c.now)
		c.must(c.commit(drop.Partial))
	}
	for what, tc := range map[string]struct {
		replicas int
		then     []func(c *cluster)
		want     errs.Kind
	}{
		"nothing":                         {1, nil, errs.OK},
		"moved to other memory":           {1, []func(*cluster){move(1, "a", "b")}, errs.ReplicaNotReady},
		"moved away and back":             {1, []func(*cluster){move(1, "a", "c"), move(2, "c", "b")}, errs.ReplicaNotReady},
		"cleared and copied back":         {2, []func(*cluster){clear, copied(true)}, errs.ReplicaNotReady},
		"unmounted and copied back":       {2, []func(*cluster){func(c *cluster) { c.unmount(mounted(1)) }, copied(true)}, errs.ReplicaNotReady},
		"unmounted when it was copied":    {2, []func(*cluster){copied(true), func(c *cluster) { c.unmount(mounted(1)) }}, errs.ReplicaNotReady},
		"a copy from elsewhere given up":  {2, []func(*cluster){copied(false)}, errs.OK},
		"gone from memory of another one": {2, []func(*cluster){move(2, "c", "d")}, errs.OK},
	} {
		c := newCluster(t)
		for n, name := range []string{"a", "b"} {
			c.mountOf(1, byte(n+1), name, 1<<10)
		}
		for n, name := range []string{"c", "d"} {
			c.mountOf(2, byte(n+3), name, 1<<10)
		}
		c.mountDisk(1, true)
		c.put("k", func(p *metadata.Put) { p.Replicas, p.Preferred = tc.replicas, []string{"a", "c"} })
		source := metadata.OffloadSource{Ref: c.refOf("k"), Client: client(1)}
		if _, _, ok := c.primary.BeginCopy(source, c.now.Add(time.Second)); !ok {
			t.Fatalf("%s: got that the copy does not begin, want that it does", what)
		}
		for _, f := range tc.then {
			f(c)
		}
		c.pass(time.Hour)
		wantKind(t, what+": the copy", c.copyTo(1, "k"), tc.want)
		if _, _, ok := c.primary.BeginCopy(source, c.now.Add(time.Second)); ok {
			t.Errorf("%s: got that a second copy begins, want not: the report of the first would be taken for its own", what)
		}
	}
}

// During a move no copy begins, since the end of the move would make it invalid.
func TestNoCopyBeginsDuringAMove(t *testing.T) {
	for _, move := range []bool{true, false} {
		c := newPair(t)
		c.start(transferOf(func(t *metadata.Transfer) { t.Move = move }))
		if _, _, ok := c.primary.BeginCopy(metadata.OffloadSource{Ref: c.refOf("k"), Client: client(1)}, c.now); ok == move {
			t.Errorf("during a transfer (a move: %v): got that a copy begins: %v, want %v", move, ok, !move)
		}
	}
}

// The note that an object was spared for its copy is deleted when the copy ends. Only for objects
// that no client has copied does it stay as long as the object.
func TestSparedObjectsThatAreCopiedTakeNoMemory(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.mountDisk(1, true)
	for _, key := range []string{"copied", "refused"} {
		c.put(key)
		object, _ := c.primary.Inspect(metadata.DefaultTenant, key)
		var source metadata.OffloadSource
		for shard := range metadata.ShardCount {
			for _, s := range c.primary.ShardOffloadSources(nil, shard) {
				if s.ID == object.ID {
					source = s
				}
			}
		}
		if !c.primary.SpareForCopy(source.Ref, c.now+1000) {
			t.Fatalf("%s was not spared for its copy, want it spared", key)
		}
		k, _, ok := c.primary.BeginCopy(source, c.now+1000)
		if !ok {
			t.Fatalf("%s: got that the copy does not begin, want that it does", key)
		}
		if key == "copied" {
			c.must([]error{c.copyTo(1, key)})
		}
		c.primary.EndCopy(client(1), k, source.ID)
		if c.primary.SpareForCopy(source.Ref, c.now+1000) {
			t.Errorf("%s was spared a second time, want once", key)
		}
	}
	if n := c.primary.Copying(); n != 1 {
		t.Errorf("%d objects have a note, want that which is not copied", n)
	}
}
