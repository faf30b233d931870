package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

// Ticks of raft of one of several members. A dead leader is replaced after half a second
// to one second. With these ticks the shortest TTL of a lease is 1 s.
const (
	memberHeartbeat = 50 * time.Millisecond
	memberElection  = 500 * time.Millisecond
)

// A Member is a server's place among several that are one etcd. The zero value is the
// place of a lone server.
type Member struct {
	// Name is unique among them.
	Name string
	// PeerAddr is the host:port at which the others reach this one.
	PeerAddr string
	// InitialCluster are all members, this one included, of the etcd that it joins on its
	// first start; empty to found one.
	InitialCluster string
	// Founds says that it may be the only one.
	Founds bool
}

// HasData reports whether a directory has the data of a server.
func HasData(dir string) bool { return wal.Exist(filepath.Join(dir, "member", "wal")) }

// PeerURL is how the others call a member that listens at an address.
func PeerURL(address string, secrecy TLS) string {
	u := url.URL{Scheme: "http", Host: address}
	if secrecy.Cert != "" {
		u.Scheme = "https"
	}
	return u.String()
}

func (m Member) configure(c *embed.Config, secrecy TLS) {
	own := PeerURL(m.PeerAddr, secrecy)
	peer, err := url.Parse(own)
	if err != nil { // validate has checked it
		return
	}
	c.Name = m.Name
	c.AdvertisePeerUrls = []url.URL{*peer}
	c.InitialCluster = m.Name + "=" + own
	if m.InitialCluster != "" {
		c.InitialCluster, c.ClusterState = m.InitialCluster, embed.ClusterStateFlagExisting
	}
	if secrecy.Cert != "" {
		c.PeerTLSInfo = secrecy.info() // by which it calls the others
	}
	c.TickMs, c.ElectionMs = uint(memberHeartbeat.Milliseconds()), uint(memberElection.Milliseconds())
	// A follower further behind gets the database as a snapshot. One that gets two of them in
	// short order may panic (etcd issue 18055), so etcd keeps its default number of entries.
	c.SnapshotCatchUpEntries = embed.NewConfig().SnapshotCatchUpEntries
}

// joinEvery is how often etcd is asked to give a learner its vote.
const joinEvery = 200 * time.Millisecond

// Join returns when this member serves, and votes: until then it answers hardly anything.
// It waits as long as a majority of the members is away.
func (s *Server) Join(ctx context.Context) error {
	if err := s.WaitReady(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(joinEvery)
	defer tick.Stop()
	var err error
	for s.etcd.Server.IsLearner() {
		// Refused until it has caught up; a later look shows whether it went through.
		_, err = s.etcd.Server.PromoteMember(ctx, uint64(s.etcd.Server.MemberID()))
		select {
		case <-tick.C:
		case stopped, ok := <-s.errc:
			return errors.Join(stopped, fmt.Errorf("etcd in %s ended before it had a vote: %t", s.DataDir, !ok))
		case <-ctx.Done():
			return fmt.Errorf("embedded etcd in %s has no vote yet: %w", s.DataDir, errors.Join(context.Cause(ctx), err))
		}
	}
	return s.move(ctx)
}

// move changes this member's peer URL in the list of members, if it has another one now: it
// may have been a lone server, or had no certificate.
func (s *Server) move(ctx context.Context) error {
	etcd, want := s.etcd.Server, []string{s.ownURL()}
	self := etcd.Cluster().Member(etcd.MemberID())
	if self == nil || slices.Equal(self.PeerURLs, want) {
		return nil
	}
	s.Logger.Info().Strs("from", self.PeerURLs).Str("to", want[0]).Msg("this member of etcd listens elsewhere than etcd's list of members says: the list is changed")
	_, err := etcd.UpdateMember(ctx, membership.Member{ID: etcd.MemberID(), RaftAttributes: membership.RaftAttributes{PeerURLs: want}})
	if err != nil {
		return fmt.Errorf("embedded etcd in %s: moving this member from %s to %s: %w", s.DataDir, strings.Join(self.PeerURLs, ","), want[0], err)
	}
	return nil
}
