package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/metadata"
)

// A Space is how full an embedded etcd is.
type Space struct {
	Bytes, Quota int64 // of the database; 0 if not known
	Alarm        bool  // NOSPACE: etcd refuses writes
	Fault        error // why no more space can be made; nil if it can, or need not

	used  int64 // of the bytes; the rest are free pages
	leads bool  // this member leads etcd
}

// fullShare is the part of the quota, one in so many, that is kept for what etcd and the
// journal need to go on, such as beats. Changes are refused when less than that is left.
const fullShare = 10

// Full reports whether changes are to be refused.
func (s Space) Full() bool {
	return s.Alarm || s.Quota > 0 && s.Bytes >= s.Quota-s.Quota/fullShare
}

// A Cover is what of the journal may go without a loss, because a complete node has
// saved the state that it led to.
type Cover struct {
	Revision int64        // up to which history may go
	Seq      metadata.Seq // up to which records may be deleted
}

// Space returns how full etcd was when it was looked at last. Safe for concurrent use.
func (c *Compactor) Space() Space { return *c.space.Load() }

const (
	// spacePause is the pause between two attempts to make space.
	spacePause = 2 * time.Second
	// defragPause is the pause between two defragmentations that can free little: while
	// one copies the database, etcd answers nothing. It doubles up to lastDefragPause.
	defragPause     = 4 * time.Second
	lastDefragPause = time.Minute
)

// watchSpace looks how full an embedded etcd is, and makes space if it is too full.
func (c *Compactor) watchSpace(ctx context.Context) error {
	if c.Cover == nil {
		return nil
	}
	space, err := c.usage(ctx)
	switch {
	case err != nil:
		return err
	case !space.Full():
		c.pause, c.defragAfter = 0, 0
		return nil
	case c.Clock() < c.after:
		return nil
	}
	freed, err := c.makeSpace(ctx, space)
	if err == nil && !freed.Full() {
		c.Log.Warn("etcd was nearly out of space; its history was compacted and defragmented",
			"revision", c.cut, "before", space.Bytes, "bytes", freed.Bytes, "quota", freed.Quota)
	}
	c.after = c.Clock() + spacePause
	return err
}

// usage asks etcd how full it is.
func (c *Compactor) usage(ctx context.Context) (Space, error) {
	ctx, cancel := context.WithTimeout(ctx, AttemptTimeout)
	defer cancel()
	st, err := c.Client.Status(ctx, c.member())
	if err != nil {
		return Space{}, fmt.Errorf("asking etcd for its size: %w", err)
	}
	noSpace := etcdserverpb.AlarmType_NOSPACE.String()
	space := Space{Bytes: st.DbSize, Quota: st.DbSizeQuota, used: st.DbSizeInUse, leads: st.Leader == st.Header.MemberId, Fault: c.Space().Fault}
	space.Alarm = slices.ContainsFunc(st.Errors, func(e string) bool { return strings.Contains(e, noSpace) })
	if !space.Full() {
		space.Fault = nil
	}
	c.space.Store(&space)
	return space, nil
}

// member is the one that is embedded in this node.
func (c *Compactor) member() string { return c.Client.Endpoints()[0] }

// cutCovered deletes and compacts what is covered, so that followers that are behind load
// a snapshot. The fault is why more is kept.
func (c *Compactor) cutCovered(ctx context.Context) (fault, err error) {
	cover, fault := c.Cover(ctx)
	revision := cover.Revision
	if cover.Seq > 0 {
		c.marks = nil
		if revision, err = c.deleteRecords(ctx, cover.Seq); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	// etcd goes on with it in any case, and an embedded one that is stopped in it crashes.
	return fault, c.compact(context.WithoutCancel(ctx), revision, clientv3.WithCompactPhysical())
}

// makeSpace cuts what is covered, gives the freed pages back, and lifts the NOSPACE
// alarm. Where several nodes each have a member of etcd, one of them cuts and lifts the
// alarm, and each gives back the pages of its own member.
func (c *Compactor) makeSpace(ctx context.Context, full Space) (freed Space, err error) {
	var fault error
	cuts := c.Cuts == nil || c.Cuts(full.leads)
	if cuts {
		if fault, err = c.cutCovered(ctx); err != nil {
			return full, err
		}
	}
	if freed, err = c.usage(ctx); err != nil {
		return full, err
	}
	if c.mustDefragment(freed) {
		if err := c.inTurn(ctx, c.defragment); err != nil {
			return full, err
		}
		if freed, err = c.usage(ctx); err != nil {
			return full, err
		}
	}
	if cuts && freed.Bytes < freed.Quota && freed.Alarm {
		if err := c.disarm(ctx); err != nil {
			return full, fmt.Errorf("disarming NOSPACE: %w", err)
		}
		freed.Alarm = false
	}
	if freed.Full() {
		freed.Fault = fault
	}
	c.space.Store(&freed)
	if freed.Full() && fault != nil && (full.Fault == nil || full.Fault.Error() != fault.Error()) { // said once
		return freed, fmt.Errorf("etcd is nearly full, and its history is still needed: %w", fault)
	}
	return freed, nil
}

// mustDefragment reports whether free pages are to be given back: when they are many,
// and, for as long as etcd refuses writes, from time to time to get below the quota.
func (c *Compactor) mustDefragment(s Space) bool {
	switch {
	case s.Bytes-s.used > s.Quota/(2*fullShare):
		return true
	case !s.Alarm || c.Clock() < c.defragAfter:
		return false
	}
	c.pause = min(max(2*c.pause, defragPause), lastDefragPause)
	c.defragAfter = c.Clock() + c.pause
	return true
}

func (c *Compactor) disarm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, AttemptTimeout)
	defer cancel()
	list, err := c.Client.AlarmList(ctx)
	if err != nil {
		return err
	}
	for _, alarm := range list.Alarms {
		if alarm.Alarm != etcdserverpb.AlarmType_NOSPACE {
			continue
		}
		if _, err := c.Client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(alarm)); err != nil {
			return err
		}
	}
	return nil
}

// defragTimeout bounds the defragmentation, which copies the database while nothing else
// is served.
const defragTimeout = time.Minute

// defragment waits for the end of what it began even if the context ends: etcd
// goes on with it in any case, and an embedded one must not be stopped in it.
func (c *Compactor) defragment(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), defragTimeout)
	defer cancel()
	if _, err := c.Client.Defragment(ctx, c.member()); err != nil {
		return fmt.Errorf("defragmenting etcd: %w", err)
	}
	return nil
}

// inTurn runs what makes a member of etcd silent, for one of several members at a time. A
// key on a lease says which one. If it is another's turn, inTurn does nothing. An etcd
// that is full takes no key; then inTurn runs it, as nothing can be acknowledged in any
// case.
func (c *Compactor) inTurn(ctx context.Context, run func(context.Context) error) error {
	if c.Cuts == nil {
		return run(ctx)
	}
	asking, cancel := context.WithTimeout(ctx, AttemptTimeout)
	defer cancel()
	lease, err := c.Client.Grant(asking, int64((defragTimeout + AttemptTimeout).Seconds()))
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return run(ctx)
	}
	if err != nil {
		return fmt.Errorf("taking turns to defragment etcd: %w", err)
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), AttemptTimeout)
		defer cancel()
		_, _ = c.Client.Revoke(ending, lease.ID) // else it runs out
	}()
	key := c.Layout.Defragmenting()
	// A key without a lease is not there, or was written by hand.
	mine, err := c.Client.Txn(asking).If(clientv3.Compare(clientv3.LeaseValue(key), "=", 0)).
		Then(clientv3.OpPut(key, c.member(), clientv3.WithLease(lease.ID))).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace), err == nil && mine.Succeeded:
		return run(ctx)
	case err != nil:
		return fmt.Errorf("taking turns to defragment etcd: %w", err)
	}
	return nil
}
