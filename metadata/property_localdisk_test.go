package metadata_test

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// A diskCopy is an object on the SSD of a client, reached at an endpoint.
type diskCopy struct {
	id       metadata.ObjectID
	client   segment.ClientID
	endpoint string
}

// checkCopies checks that each replica on an SSD is one that its client has reported, and that
// the client has an SSD.
func (w *world) checkCopies(t *rapid.T, list metadata.ReplicaList) {
	alone := true
	for _, r := range list.Replicas {
		if r.Kind != metadata.LocalDisk {
			alone = false
			continue
		}
		if !w.copies[diskCopy{list.ID, r.Client, r.Endpoint}] {
			t.Fatalf("object %v: got a copy at %s of client %v, want only copies that were reported", list.ID, r.Endpoint, r.Client)
		}
		if _, ok := w.primary.FindLocalDisk(r.Client); !ok {
			t.Fatalf("object %v: got a copy of client %v, want none: its SSD is gone", list.ID, r.Client)
		}
	}
	if alone {
		w.onSSD++
	}
}

func (w *world) localDiskAction(t *rapid.T) {
	if slices.ContainsFunc(w.queue, func(q queued) bool {
		switch q.change.(type) {
		case *metadata.MountLocalDisk, *metadata.SetOffloading, *metadata.UnmountLocalDisk, *metadata.WipeDisks, *metadata.CloseSegment:
			return true
		}
		return false
	}) {
		return // as segments, one after the other
	}
	owner, offloading := client(byte(1+w.pick(t, "owner", 3))), w.pick(t, "offloading", 2) == 0
	info, mounted := w.primary.FindLocalDisk(owner)
	emptied := func(err error) {
		if err == nil {
			maps.DeleteFunc(w.copies, func(c diskCopy, _ bool) bool { return c.client == owner })
		}
	}
	switch {
	case mounted && w.pick(t, "unmount", 4) == 0:
		w.submit(emptied, &metadata.UnmountLocalDisk{Number: info.Number})
	case info.Wipe:
		w.submit(emptied, &metadata.WipeDisks{Number: info.Number})
	case w.pick(t, "wipe", 8) == 0:
		if e := w.primary.PrepareWipe(""); e != nil {
			w.submit(nil, e)
		}
	case w.pick(t, "close", 8) == 0:
		w.closeAction(t)
	case mounted && w.pick(t, "capacity", 4) == 0:
		if e, _ := w.primary.PrepareSetCapacity(owner, uint64(100*w.pick(t, "bytes", 3))); e != nil {
			w.submit(nil, e)
		}
	case mounted && w.pick(t, "flag", 2) == 0:
		if e, _ := w.primary.PrepareSetOffloading(owner, offloading); e != nil {
			w.submit(nil, e)
		}
	default:
		if e := w.primary.PrepareMountLocalDisk(owner, offloading); e != nil {
			w.submit(nil, e)
		}
	}
}

// closeAction closes a segment, which is unmounted some other time.
func (w *world) closeAction(t *rapid.T) {
	list := w.primary.Segments()
	if len(list) == 0 {
		return
	}
	s := list[w.pick(t, "segment", len(list))]
	if e, _ := w.primary.PrepareClose(s.Client, s.ID, 1); e != nil {
		w.submit(nil, e)
	}
}

func (w *world) offloadedAction(t *rapid.T) {
	tenant, key, owner := w.tenant(t), w.key(t), client(byte(1+w.pick(t, "owner", 3)))
	o, err := w.primary.Inspect(tenant, key)
	info, mounted := w.primary.FindLocalDisk(owner)
	if err != nil || !mounted {
		return
	}
	c := diskCopy{o.ID, owner, fmt.Sprint("ssd:", w.pick(t, "port", 2))}
	e, _, _ := w.primary.PrepareOffloaded(metadata.Offloaded{
		Tenant: tenant, Key: key, ID: o.ID, Client: owner, Number: info.Number, Size: o.Size, Endpoint: c.endpoint,
	})
	if e != nil {
		w.submit(func(err error) {
			if err == nil {
				w.copies[c] = true
			}
		}, e)
	}
}

func (w *world) abandonAction(t *rapid.T) {
	key := w.key(t)
	if o, err := w.primary.Inspect("default", key); err == nil {
		w.primary.Abandon("default", key, o.ID)
	}
}
