package ctl

import (
	"testing"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// The longest leases may be on the last page, and no more of the others are kept than needed.
func TestLongestLeases(t *testing.T) {
	var list leaseList
	for _, page := range []*pb.ListKeysResponse{
		{Keys: []string{"a", "b", "c", "d"}, LeaseRemainingMs: []uint64{1, 4, 2, 3}},
		{Keys: []string{"e", "f"}, LeaseRemainingMs: []uint64{9, 0}},
	} {
		list.take(page, 2)
	}
	got := ""
	for _, l := range list.Leases {
		got += l.Key
	}
	if got != "ebd" { // one more than the limit says that there are more
		t.Errorf("got the leases %q, want ebd", got)
	}
}
