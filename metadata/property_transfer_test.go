package metadata_test

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

func (w *world) transferOf(t *rapid.T) *metadata.Transfer {
	about := &metadata.Transfer{
		Tenant: w.tenant(t), Key: w.key(t), Client: client(byte(1 + w.pick(t, "client", 2))), Move: w.pick(t, "move", 2) == 0,
		Source: string('a' + rune(w.pick(t, "source", 3))), Targets: []string{string('a' + rune(w.pick(t, "target", 3)))},
	}
	about.Metered = about.Tenant != metadata.DefaultTenant
	if !about.Move && w.pick(t, "both", 2) == 0 {
		about.Targets = []string{"a", "b", "c"}
	}
	return about
}

// transferAction begins a copy or a move. Its client reads the source and writes to
// the targets until the release timeout, whatever becomes of the object.
func (w *world) transferAction(t *rapid.T) {
	about := w.transferOf(t)
	e, _, _ := w.primary.PrepareTransfer(about)
	w.beginTransfer(about, e)
}

// promotionAction begins the promotion of an object from an SSD, as transferAction
// does a copy, or ends one.
func (w *world) promotionAction(t *rapid.T) {
	for n := range 8 {
		about := &metadata.Transfer{Tenant: w.tenant(t), Key: fmt.Sprint(n), Promotion: true}
		o, err := w.primary.Inspect(about.Tenant, about.Key)
		if err != nil {
			continue
		}
		about.ID, about.Client = o.ID, client(1)
		for _, d := range o.Replicas {
			if d.Kind == metadata.LocalDisk && w.pick(t, "stranger", 8) > 0 {
				about.Client = d.Client
			}
		}
		if u, ok := w.transfers[o.ID]; ok && u.about.Promotion && w.pick(t, "stranger", 8) > 0 {
			about = u.about
			w.endTransfer(t, about, w.pick(t, "complete", 4) > 0)
			continue
		}
		if w.pick(t, "read", 6) == 0 {
			w.get(about.Tenant, about.Key, t)
		}
		e, _, _ := w.primary.PreparePromotion(&metadata.Promotion{Tenant: about.Tenant, Key: about.Key, ID: o.ID, Client: about.Client, Size: o.Size})
		w.beginTransfer(about, e)
	}
}

func (w *world) beginTransfer(about *metadata.Transfer, e *metadata.StartTransfer) {
	if e == nil {
		return
	}
	start := w.real()
	w.submit(func(err error) {
		if err != nil {
			return
		}
		source, targets := e.Descriptors()
		until := start.Add(quick.ReleaseTimeout)
		w.use(user{id: e.ID, ranges: rangesOf(targets, 0), until: until, writer: true})
		w.transfers[e.ID] = underWay{about, e.Source, source.Address, until}
	}, e)
}

// underWay is a transfer whose end was not acknowledged yet.
type underWay struct {
	about   *metadata.Transfer
	source  segment.Number
	address uint64
	until   metadata.Time // in real time
}

// transferEndAction ends a transfer, as its client or as a stranger. A complete end makes
// readable only the targets that the client was told to write.
func (w *world) transferEndAction(t *rapid.T) {
	about := w.transferOf(t)
	o, err := w.primary.Inspect(about.Tenant, about.Key)
	if u, ok := w.transfers[o.ID]; ok && err == nil && w.pick(t, "stranger", 8) > 0 {
		about = u.about
	}
	w.endTransfer(t, about, w.pick(t, "complete", 4) > 0)
}

func (w *world) endTransfer(t *rapid.T, about *metadata.Transfer, complete bool) {
	e, _, _ := w.primary.PrepareTransferEnd(about, complete, w.now)
	if e == nil {
		return
	}
	w.submit(func(err error) {
		if err != nil {
			return
		}
		u := w.transfers[e.ID]
		delete(w.transfers, e.ID)
		if u.about != nil && (u.about.Client != about.Client || u.about.Move != about.Move || u.about.Promotion != about.Promotion) {
			t.Fatalf("client %v ended the transfer %+v of object %v, want that only by its own client", about.Client, u.about, e.ID)
		}
		if !complete {
			return // the client may go on writing
		}
		// It has written all, also where a copy goes on without a target that is lost:
		// then the others are readable, and may be evicted at once.
		w.dropWriters(e.ID)
		if e.Lost {
			return
		}
		if w.ended++; about.Promotion {
			w.promoted++
		}
	}, e)
}

// checkTransfers checks that the sources of transfers under way still exist: only the loss of
// their segment may remove them.
func (w *world) checkTransfers(t *rapid.T) {
	if len(w.transfers) == 0 {
		return
	}
	mounted := make(map[segment.Number]bool)
	for _, p := range w.primary.Segments() {
		mounted[p.Number] = true
	}
	for _, p := range w.primary.LocalDisks() {
		mounted[p.Number] = true
	}
	for id, u := range w.transfers {
		if w.real() >= u.until || !mounted[u.source] {
			delete(w.transfers, id)
			continue
		}
		o, err := w.primary.Inspect(u.about.Tenant, u.about.Key)
		if err != nil || o.ID != id || !slices.ContainsFunc(o.Replicas, func(d metadata.Descriptor) bool {
			if u.about.Promotion {
				return d.Kind == metadata.LocalDisk && d.Client == u.about.Client
			}
			return d.Kind == metadata.Memory && d.Status == metadata.Complete && d.Address == u.address
		}) {
			t.Fatalf("a transfer of object %v is under way: got %v, %+v, want its source kept", id, err, o.Replicas)
		}
	}
}
