package ctl

import (
	"fmt"
	"io"

	"github.com/google/uuid"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/cli"
)

type objectResult struct {
	Key      string          `json:"key"`
	ID       string          `json:"object_id,omitempty"`
	Size     uint64          `json:"size,omitempty"`
	Lease    *int64          `json:"lease_ttl_ms,omitempty"` // nil if nothing was read
	Replicas []replicaResult `json:"replicas,omitempty"`
	Error    *faultResult    `json:"error,omitempty"`
}

// replicaResult is a replica in JSON; which fields it has depends on its kind.
type replicaResult struct {
	Kind     string `json:"kind"`
	Segment  string `json:"segment,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
	Address  uint64 `json:"address,omitempty"`
	Protocol string `json:"protocol,omitempty"`
	Path     string `json:"path,omitempty"`
	Client   string `json:"client_id,omitempty"`
}

func reserved(r client.Reservation) objectResult {
	return objectResult{Key: r.Key, ID: r.ID.String(), Size: r.Size, Replicas: replicas(r.Replicas)}
}

func found(key string, o *client.Object) objectResult {
	left := o.Lease.Remaining().Milliseconds()
	return objectResult{Key: key, ID: o.ID.String(), Size: o.Size, Lease: &left, Replicas: replicas(o.Replicas)}
}

var replicaKinds = map[client.ReplicaKind]string{client.Memory: "memory", client.Disk: "disk", client.LocalDisk: "local-disk"}

func replicas(list []client.Replica) []replicaResult {
	results := make([]replicaResult, len(list))
	for i, r := range list {
		kind, known := replicaKinds[r.Kind]
		if !known {
			kind = "unknown"
		}
		results[i] = replicaResult{Kind: kind, Segment: r.Segment, Endpoint: r.Endpoint, Address: r.Address, Protocol: r.Protocol, Path: r.Path}
		if r.Client != uuid.Nil {
			results[i].Client = r.Client.String()
		}
	}
	return results
}

func (r *replicaResult) place() string {
	switch r.Kind {
	case "memory":
		return fmt.Sprintf("%s at %#x of %s", r.Segment, r.Address, cli.Or(r.Endpoint))
	case "disk":
		return r.Path
	default:
		return fmt.Sprintf("client %s at %s", cli.Or(r.Client), cli.Or(r.Endpoint))
	}
}

// objectTable prints a row for each replica, and nothing if there are none. Objects with an
// error have no replicas: they are reported elsewhere.
func objectTable(w io.Writer, objects []objectResult) {
	t := cli.NewTable(w, "KEY", "OBJECT", "SIZE", "LEASE", "REPLICA", "WHERE")
	rows := 0
	for _, o := range objects {
		lease := "-"
		if o.Lease != nil {
			lease = cli.Millis(*o.Lease).String()
		}
		for i := range o.Replicas {
			r := &o.Replicas[i]
			t.Row(cli.Key(o.Key), o.ID, cli.SizeText(o.Size), lease, r.Kind, r.place())
			rows++
		}
	}
	if rows > 0 {
		t.End()
	}
}
