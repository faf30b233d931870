package client

import (
	"slices"
	"sync"
	"time"

	"github.com/understudy-store/understudy/errs"
)

// claims is the memory that each of several clusters may give to writers: from before its
// mount is sent until that is refused, or an unmount succeeds; and then for as long as that
// cluster's readers and writers may be at work there. No memory is claimed for two clusters.
// A nil one, of a client of one cluster, keeps nothing.
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
	ends time.Duration // by the client's clock, after an unmount; 0 before
}

// unknownHold is how long memory is kept from other clusters that was unmounted at a master
// which does not say for how long it is in use: mooncake_master's default for
// --put_start_release_timeout_sec, the longest of its times.
const unknownHold = 10 * time.Minute

// enter claims a segment, before its mount is sent. It reports false if there was the same
// claim before, which stays whatever comes of this mount.
//
// Errors: InvalidParams for memory that another cluster has, or may have; Unavailable for
// memory that it has had, and that may still be in use.
func (c *claims) enter(by *Client, s Segment) (entered bool, err error) {
	if c == nil {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := by.clock()
	c.list = slices.DeleteFunc(c.list, func(o claim) bool { return o.ends != 0 && o.ends <= now })
	for _, o := range c.list {
		switch {
		case o.by == by || !o.overlaps(&s):
		case o.ends != 0:
			return false, errs.New(errs.Unavailable, opMountSegment.name,
				"memory of segment %v was segment %v of cluster %q, whose readers and writers may be at work there for another %v; mount it after that",
				s.ID, o.ID, o.by.config.ClusterID, (o.ends - now).Round(time.Millisecond))
		default:
			return false, errs.New(errs.InvalidParams, opMountSegment.name,
				"cluster %q has memory of segment %v as segment %v, or may have it; two masters would give it to two writers: unmount it there first", o.by.config.ClusterID, s.ID, o.ID)
		}
	}
	if slices.Contains(c.list, claim{by: by, Segment: s}) {
		return false, nil
	}
	c.list = append(c.list, claim{by: by, Segment: s})
	return true, nil
}

// refuse ends the claim of a mount that has changed nothing.
func (c *claims) refuse(by *Client, s Segment) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = slices.DeleteFunc(c.list, func(o claim) bool { return o == claim{by: by, Segment: s} })
}

// unmounted has those claims of a client's cluster that which reports end when the memory
// is free: after heldMs milliseconds from now, as the master says.
func (c *claims) unmounted(by *Client, heldMs *uint64, which func(Segment) bool) {
	if c == nil {
		return
	}
	hold := unknownHold
	if heldMs != nil {
		hold = duration(*heldMs)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ended := func(o claim) bool { return o.by == by && o.ends == 0 && which(o.Segment) }
	if hold == 0 {
		c.list = slices.DeleteFunc(c.list, ended)
		return
	}
	for i := range c.list {
		if ended(c.list[i]) {
			c.list[i].ends = by.clock() + hold
		}
	}
}

// notApplied reports whether an error says that a call has changed nothing. Internal does
// not: it may be a defect, or come from another program.
func notApplied(err error) bool {
	kind := errs.KindOf(err)
	return kind != errs.OK && kind != errs.Unresolved && kind != errs.Internal
}
