package mooncakeserver

import (
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/service"
)

// maxFound is how many objects GetReplicaListByRegex answers at most: this
// protocol has no pages, and clients take no endless answers.
const maxFound = 100_000

func getReplicaListByRegex(c call, a *mooncake.KeyArgs, r *mooncake.Result[[]mooncake.KeyedReplicas]) error {
	found, more, err := c.master.GetReplicaListByRegex(c, tenant, a.Key, service.Page{Size: maxFound})
	if err == nil && more != "" {
		err = errs.New(errs.InvalidParams, "GetReplicaListByRegex", "the pattern is found in more than %d keys; use a narrower one", maxFound)
	}
	r.Value = r.Value[:0]
	for _, k := range found {
		r.Value = append(r.Value, mooncake.KeyedReplicas{Key: k.Key, Placement: mooncake.Placement{ID: k.ID, Replicas: k.Replicas}})
	}
	return settle(c, "GetReplicaListByRegex", r, err)
}
