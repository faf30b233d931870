package client_test

import (
	"testing"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
)

// An upsert replaces the object under its key, over either protocol.
func TestUpsert(t *testing.T) {
	for _, protocol := range append(mooncake.Names(), "gRPC") {
		t.Run(protocol, func(t *testing.T) {
			cl := newCluster(t, 1)
			n := cl.lead(0)
			c := cl.connectAll()
			mountMemory(t, c)
			if protocol != "gRPC" {
				c = overMooncake(t, func(c *client.Config) { c.Transport = transport(t, protocol) }, n.port(protocol, false).address)
			}
			ctx, upsert := t.Context(), client.PutConfig{Upsert: true}
			before := client.ObjectID(0)
			for range 2 {
				r, err := c.PutStart(ctx, client.PutItem{Key: "k", Size: 100}, upsert)
				if err != nil || r.ID <= before {
					t.Fatalf("got %+v, %v; want a later object than %v", r, err, before)
				}
				wantKind(t, "the end", c.PutEnd(ctx, r.Ref(), client.SelectAll), errs.OK)
				if o, err := c.GetReplicaList(ctx, "k"); err != nil || o.ID != r.ID {
					t.Errorf("got %+v, %v; want object %v", o, err, r.ID)
				}
				before = r.ID
			}
			reserved, err := c.BatchPutStart(ctx, []client.PutItem{{Key: "k", Size: 1}, {Key: "l", Size: 1}}, upsert)
			if err != nil || reserved[0].Err != nil || reserved[1].Err != nil || reserved[0].ID <= before {
				t.Fatalf("got %+v, %v; want two reservations", reserved, err)
			}
			wantKind(t, "its revocation", c.PutRevoke(ctx, reserved[0].Ref(), client.SelectAll), errs.OK)
			_, err = c.GetReplicaList(ctx, "k")
			wantKind(t, "after it", err, errs.ObjectNotFound)
		})
	}
}
