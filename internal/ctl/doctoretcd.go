package ctl

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/journal"
)

// askEtcd checks etcd by the answers of its members. It reports whether one answers.
func (f *Flags) askEtcd(ctx context.Context, d *diagnosis, all nodes, keep limits) bool {
	endpoints := f.etcd
	for _, n := range all.answering() {
		for _, e := range n.status.GetJournal().GetEtcdEndpoints() {
			if len(f.etcd) == 0 && !slices.Contains(endpoints, e) {
				endpoints = append(endpoints, e)
			}
		}
	}
	if len(endpoints) == 0 {
		d.add("etcd", warns, "name its members with --etcd-endpoints", "it was not checked, as no node says where it is")
		return false
	}
	access, err := f.etcdAccess(endpoints)
	if err != nil {
		d.add("etcd", bad, "correct the --etcd- flags", "%v", err)
		return false
	}
	waits, cancel := context.WithTimeout(ctx, askTimeout)
	c, err := etcdclient.Connect(waits, endpoints, access, nil)
	cancel()
	if err != nil {
		d.add("etcd", bad, "see that its members run; correct --etcd-endpoints and --etcd-user", "it does not answer as it should: %v", err)
		return false
	}
	defer func() { _ = c.Close() }()
	answers, failures := statuses(ctx, c, endpoints)
	var versions []string
	for i, e := range endpoints {
		version := d.checkMember(e, answers[i], failures[i], all.best(), f.vouches(all, e))
		if version != "" && !slices.Contains(versions, version) {
			versions = append(versions, version)
		}
	}
	if len(versions) == 0 {
		return false
	}
	d.checkEtcdVersions(versions)
	d.checkAlarms(ctx, c)
	d.checkLatency(ctx, c, journal.NewLayout(f.prefix, f.clusterID), keep)
	return true
}

// etcdByNodes checks etcd by what the nodes have heard from its members, and says what only
// the members could say.
func (d *diagnosis) etcdByNodes(all nodes, keep limits) {
	const silent = "no member of etcd answers masterctl from here"
	var versions, alarms []string
	var longest time.Duration
	for _, n := range all.answering() {
		j := n.status.GetJournal()
		versions, alarms = append(versions, j.GetEtcdVersions()...), append(alarms, j.GetEtcdAlarms()...)
		longest = max(longest, time.Duration(j.GetEtcdAnswerUs())*time.Microsecond)
	}
	spaceKnown := slices.ContainsFunc(d.Findings, func(x finding) bool { return x.Check == "etcd space" && !strings.HasPrefix(x.Text, "etcd of ") })
	if j := all.best().status.GetJournal(); !spaceKnown && j.GetEtcdBytes() > 0 {
		d.checkSpace("as "+all.best().id+" knows it", j.GetEtcdBytes(), j.GetEtcdQuotaBytes())
	}
	if len(versions) == 0 {
		for _, check := range []string{"etcd version", "etcd alarms", "etcd latency"} {
			d.skip(check, "%s, and no node says what they answer it", silent)
		}
	} else {
		slices.Sort(versions)
		d.checkEtcdVersions(slices.Compact(versions))
		slices.Sort(alarms)
		d.judgeSaidAlarms(slices.Compact(alarms))
		d.judgeLatency(fmt.Sprintf("the members answered the nodes within %.1f ms", float64(longest.Microseconds())/1000), longest, keep)
	}
	d.skip("keepalives", "%s, and they alone know when the primary's session ends", silent)
}

func statuses(ctx context.Context, c *clientv3.Client, endpoints []string) ([]*clientv3.StatusResponse, []error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answers, failures := make([]*clientv3.StatusResponse, len(endpoints)), make([]error, len(endpoints))
	var wg sync.WaitGroup
	for i, e := range endpoints {
		wg.Go(func() { answers[i], failures[i] = c.Status(ctx, e) })
	}
	wg.Wait()
	return answers, failures
}

// vouches returns a node that uses only this member and has just got answers from it; nil
// if there is none, or if the operator named the members. A node that runs a member uses only
// that one, and the member may accept other nodes only, or only callers on its machine.
func (f *Flags) vouches(all nodes, endpoint string) *node {
	for _, n := range all.answering() {
		if len(f.etcd) == 0 && slices.Equal(n.status.GetJournal().GetEtcdEndpoints(), []string{endpoint}) && len(n.status.GetNodes()) > 0 {
			return n
		}
	}
	return nil
}

func (d *diagnosis) checkEtcdVersions(versions []string) {
	if len(versions) > 1 {
		d.add("etcd version", warns, "end the upgrade of etcd", "its members have different ones: %s", strings.Join(versions, ", "))
		return
	}
	d.checkEtcdVersion(versions[0])
}

func (d *diagnosis) checkEtcdVersion(version string) {
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n == 2 && (major < 3 || major == 3 && minor < 5) {
		d.add("etcd version", warns, "upgrade etcd to 3.5 or later", "%s is older than what nodes are tested with", version)
		return
	}
	d.add("etcd version", fine, "", "%s", version)
}

// checkMember checks the answer of one member, and returns its version. by is a node that
// knows etcd's quota, which the member may not report. voucher is a node that reached the
// member, which may not answer callers here; nil for none.
func (d *diagnosis) checkMember(endpoint string, s *clientv3.StatusResponse, err error, by, voucher *node) string {
	quota := by.status.GetJournal().GetEtcdQuotaBytes()
	switch {
	case err != nil && voucher != nil:
		journal := voucher.status.GetJournal()
		d.add("etcd", fine, "", "%s answers node %s, and not masterctl from here", endpoint, voucher.id)
		d.checkSpace(endpoint, journal.GetEtcdBytes(), journal.GetEtcdQuotaBytes())
		return ""
	case err != nil:
		d.add("etcd", bad, "start it; or correct --etcd-endpoints, if only this machine does not reach it", "%s does not answer: %v", endpoint, err)
		return ""
	case s.Leader == 0:
		d.add("etcd", bad, "start the other members: etcd needs more than half of them", "%s has no leader", endpoint)
		return s.Version
	}
	if q := s.DbSizeQuota; q > 0 { // reported since etcd 3.6
		quota = uint64(q)
	}
	d.checkSpace(endpoint, uint64(s.DbSize), quota)
	return s.Version
}

func (d *diagnosis) checkSpace(endpoint string, used, quota uint64) {
	const near = 0.8
	size := fmt.Sprintf("%s: %s", endpoint, cli.SizeText(used))
	switch {
	case quota > 0 && float64(used) > near*float64(quota):
		d.add("etcd space", warns, "see docs/operations.md, UnderstudyEtcdNearQuota", "%s of a quota of %s are used", size, cli.SizeText(quota))
	case quota > 0:
		d.add("etcd space", fine, "", "%s of a quota of %s are used", size, cli.SizeText(quota))
	default:
		d.add("etcd space", fine, "", "%s are used; it does not tell its quota", size)
	}
}

func (d *diagnosis) checkAlarms(ctx context.Context, c *clientv3.Client) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	alarms, err := c.AlarmList(ctx)
	if err != nil {
		d.add("etcd alarms", bad, "see whether etcd has a leader", "they cannot be read: %v", err)
		return
	}
	d.judgeAlarms(alarms.Alarms)
}

func (d *diagnosis) judgeAlarms(raised []*etcdpb.AlarmMember) {
	var said []string
	for _, a := range raised {
		said = append(said, fmt.Sprintf("%v of member %x", a.Alarm, a.MemberID))
	}
	d.judgeSaidAlarms(said)
}

// judgeSaidAlarms is judgeAlarms for alarms in words, with their names.
func (d *diagnosis) judgeSaidAlarms(raised []string) {
	if len(raised) == 0 {
		d.add("etcd alarms", fine, "", "none")
	}
	for _, text := range raised {
		help := "nodes that run this etcd, or compact it, make space by themselves (if it stays, see their logs); of another one: compact and defragment it, raise its quota, then etcdctl alarm disarm"
		if strings.Contains(text, etcdpb.AlarmType_CORRUPT.String()) {
			help = "replace the member whose data differ, then etcdctl alarm disarm"
		}
		d.add("etcd alarms", bad, help, "%s", text)
	}
}

// checkLatency times linearizable reads from etcd, and checks that the lease of the leader
// key is kept alive in time.
func (d *diagnosis) checkLatency(ctx context.Context, c *clientv3.Client, layout journal.Layout, keep limits) {
	const reads = 5
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	now := clock.Boot()
	var longest time.Duration
	var leader *clientv3.GetResponse
	for range reads {
		begun := now()
		resp, err := c.Get(ctx, layout.Leader())
		if err != nil {
			d.add("etcd latency", bad, "see whether etcd has a leader, and its disks and network", "a read fails: %v", err)
			return
		}
		longest, leader = max(longest, now()-begun), resp
	}
	d.judgeLatency(fmt.Sprintf("%d reads took at most %.1f ms from here", reads, float64(longest.Microseconds())/1000), longest, keep)
	if len(leader.Kvs) == 0 {
		return
	}
	if lease, err := c.TimeToLive(ctx, clientv3.LeaseID(leader.Kvs[0].Lease)); err == nil {
		d.judgeKeepalives(lease.TTL, lease.GrantedTTL)
	}
}

// judgeKeepalives compares what is left of the primary's session with the time that it was
// granted for, both in seconds. The primary renews it every fifth of that.
func (d *diagnosis) judgeKeepalives(left, granted int64) {
	if 2*left < granted {
		d.add("keepalives", warns, "look at the network between primary and etcd, and at the primary's CPU", "the primary's session ends in %d s of %d s: it is renewed every fifth of that", left, granted)
		return
	}
	d.add("keepalives", fine, "", "the primary's session is renewed in time, for %d s", granted)
}

// judgeLatency compares the longest of some reads with the times that commits must keep. A
// commit takes at least as long as such a read, and an idle primary commits every quarter of W.
func (d *diagnosis) judgeLatency(text string, longest time.Duration, keep limits) {
	const whenUnknown = 100 * time.Millisecond // a node that deposes a primary must read within this time
	warnAt, badAt, help := keep.window/4, keep.window, "look at its disks, network and CPU"
	if keep.window == 0 {
		warnAt, badAt = whenUnknown, time.Duration(math.MaxInt64)
	} else {
		text += fmt.Sprintf("; the primary answers for %v after a commit (W), and is replaced after %v without one (D)", keep.window, keep.failover)
		help += ", or raise --failover-after"
	}
	switch {
	case longest > badAt:
		d.add("etcd latency", bad, help, "%s", text)
	case longest > warnAt:
		d.add("etcd latency", warns, help, "%s", text)
	default:
		d.add("etcd latency", fine, "", "%s", text)
	}
}
