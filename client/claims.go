package client

import (
	"slices"
	"sync"

	"github.com/understudy-store/understudy/errs"
)

// claims is the memory that each of several clusters may give to writers: from before its
// mount is sent until that is refused, or an unmount succeeds. No memory is claimed for two
// clusters. A nil one, of a client of one cluster, keeps nothing.
//
// The claims of one client change one at a time, as its mounts do (Client.alone).
type claims struct {
	mu   sync.Mutex // guards list; a leaf
	list []claim
}

// A claim is a segment that a client's cluster has, or may have.
type claim struct {
	by *Client
	Segment
}

// enter claims a segment, before its mount is sent. It reports false if there was the same
// claim before, which stays whatever comes of this mount.
//
// Errors: InvalidParams for memory that is claimed for another cluster.
func (c *claims) enter(by *Client, s Segment) (entered bool, err error) {
	if c == nil {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.list {
		if o.by != by && o.overlaps(&s) {
			return false, errs.New(errs.InvalidParams, opMountSegment.name,
				"cluster %q has memory of segment %v as segment %v, or may have it; two masters would give it to two writers: unmount it there first", o.by.config.ClusterID, s.ID, o.ID)
		}
	}
	if slices.Contains(c.list, claim{by, s}) {
		return false, nil
	}
	c.list = append(c.list, claim{by, s})
	return true, nil
}

// drop ends those claims of a client's cluster that which reports.
func (c *claims) drop(by *Client, which func(Segment) bool) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = slices.DeleteFunc(c.list, func(o claim) bool { return o.by == by && which(o.Segment) })
}

// notApplied reports whether an error says that a call has changed nothing. Internal does
// not: it may be a defect, or come from another program.
func notApplied(err error) bool {
	kind := errs.KindOf(err)
	return kind != errs.OK && kind != errs.Unresolved && kind != errs.Internal
}
