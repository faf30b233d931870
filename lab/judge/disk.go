package judge

import (
	"context"
	"slices"
	"sync"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/lab/hostmem"
	"github.com/understudy-store/understudy/metadata"
)

const (
	// maxFiles is how many objects fit an SSD; the oldest are deleted. Besides, an owner
	// deletes its oldest one in one of forgetEvery rounds.
	maxFiles    = 512
	forgetEvery = 4
	// One object in offloadEvery is copied to the SSD of its memory's owner.
	offloadEvery = 2
)

// A disk is the SSD of a host: files by the label of their object's key, as on Mooncake's
// clients. A new object of a key replaces the earlier one.
type disk struct {
	mu     sync.Mutex // guards all
	files  map[string][]byte
	oldest []string // labels; each file is there once
}

// disksOf has the SSDs of hosts by endpoint.
type disksOf struct {
	mu sync.Mutex // guards by
	by map[string]*disk
}

func (d *disksOf) open(endpoint string) *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.by == nil {
		d.by = make(map[string]*disk)
	}
	d.by[endpoint] = &disk{files: make(map[string][]byte)}
	return d.by[endpoint]
}

func (d *disksOf) lose(endpoint string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.by, endpoint)
}

func (d *disksOf) read(endpoint, label string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one := d.by[endpoint]; one != nil {
		return one.read(label)
	}
	return nil
}

func (d *disk) read(label string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.files[label]
}

func (d *disk) write(label string, block []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files[label] == nil {
		d.oldest = append(d.oldest, label)
	}
	d.files[label] = slices.Clone(block)
}

// shrink deletes the oldest file if there are more than most. It returns its label, empty
// for none.
func (d *disk) shrink(most int) (gone string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.oldest) <= most {
		return ""
	}
	gone = d.oldest[0]
	d.oldest = d.oldest[1:]
	delete(d.files, gone)
	return gone
}

// wrongFile returns what is wrong with a replica on an SSD, "" for nothing. If the file is
// gone, or holds a later object, it changed after the replica was listed, which is allowed.
// A file with an earlier object is wrong.
func (r *reader) wrongFile(at client.Replica, id uint64, label string) string {
	file := r.load.disks.read(at.Endpoint, label)
	if file == nil || hostmem.ID(file) > id {
		return ""
	}
	r.load.did.diskReads.Add(1)
	return hostmem.Check(file, r.scratch, id, label)
}

// offload copies objects to the owner's SSD.
func (o *owner) offload(ctx context.Context) {
	if o.rng.IntN(forgetEvery) == 0 {
		o.forget(ctx, 0)
	}
	tasks, err := o.OffloadObjectHeartbeat(ctx, true)
	if err != nil || len(tasks) == 0 {
		return
	}
	done, saved := make([]client.OffloadedObject, len(tasks)), int64(0)
	for i, t := range tasks {
		done[i] = client.OffloadedObject{Task: t, DataSize: t.Size, Endpoint: o.host.Endpoint, Refused: true}
		if o.rng.IntN(offloadEvery) == 0 && o.load.ring.has(t.Key) {
			if done[i].Refused = !o.save(ctx, t); !done[i].Refused {
				saved++
			}
		}
	}
	if o.NotifyOffloadSuccess(ctx, done) == nil {
		o.load.did.offloads.Add(saved)
	}
}

// save copies one object, and reports whether it succeeded.
func (o *owner) save(ctx context.Context, t client.OffloadTask) bool {
	began := o.load.Now()
	list, err := ask(ctx, o, o.load.speaks.GetReplicaList, mooncake.Args{Key: t.Key, Tenant: t.Tenant})
	if err != nil {
		return false
	}
	i := slices.IndexFunc(list.Replicas, func(d metadata.Descriptor) bool { return d.Kind == metadata.Memory })
	if i < 0 {
		return false
	}
	name := label(t.Tenant, t.Key)
	wrong := o.wrong(client.Replica{Endpoint: list.Replicas[i].Endpoint, Address: list.Replicas[i].Address}, uint64(list.ID), name)
	if o.load.Now() >= began+list.LeaseTTL || o.load.lostSince(began) {
		return false
	}
	if wrong != "" {
		o.load.seen.add(A, "%v: to be copied to an SSD, %s", seconds(o.load.Now()), wrong)
		return false
	}
	o.disk.write(name, o.found)
	o.forget(ctx, maxFiles)
	return true
}

// forget deletes the oldest file if there are more than most, and reports that to the cluster.
func (o *owner) forget(ctx context.Context, most int) {
	gone := o.disk.shrink(most)
	if gone == "" {
		return
	}
	tenant, key := unlabel(gone)
	a := mooncake.Args{Key: key, Tenant: tenant, Kind: mooncake.ReplicaLocalDisk}
	if o.done(ctx, o.load.speaks.EvictDiskReplica, a) == nil {
		o.load.did.diskEvictions.Add(1)
	}
}

// promote copies objects from the owner's SSD to memory.
func (o *owner) promote(ctx context.Context) {
	tasks, _ := ask(ctx, o, o.load.speaks.PromotionHeartbeat, mooncake.Args{})
	for _, t := range tasks {
		a := mooncake.Args{Key: t.Key, Tenant: t.Tenant, Size: uint64(t.Size), Targets: []string{o.host.Name}}
		name := label(t.Tenant, t.Key)
		began, file := o.load.Now(), o.disk.read(name)
		to, err := ask(ctx, o, o.load.speaks.PromotionStart, a)
		if err != nil || file == nil || hostmem.Check(file, o.scratch, uint64(to.ID), name) != "" || o.load.lostSince(began) {
			_ = o.done(ctx, o.load.speaks.PromotionFailure, a)
			continue
		}
		o.fill(to.Descriptor, file)
		if o.done(ctx, o.load.speaks.PromotionSuccess, a) == nil {
			o.load.did.promotions.Add(1)
		}
	}
}
