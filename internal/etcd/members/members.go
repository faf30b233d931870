// Package members changes of which members the nodes' own etcd consists: each node runs
// one. A member joins without a vote, as a learner; package etcdserver has it vote when it
// has caught up.
//
// It must never take away a member whose node runs, which its callers know, nor one that a
// majority needs, which etcd refuses.
package members

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/errs"
)

// timeout bounds what etcd is asked: a change waits for a majority of its members.
const timeout = 5 * time.Second

// A Member is one of etcd's.
type Member struct {
	Name    string // of its node; empty until it has started for the first time
	PeerURL string // where the others reach it
	Learner bool   // without a vote
	id      uint64
}

// List returns the members, by name. It needs a majority of them.
func List(ctx context.Context, client *clientv3.Client) ([]Member, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := client.MemberList(ctx)
	if err != nil {
		return nil, errs.Wrap(errs.Unavailable, "", fmt.Errorf("asking etcd for its members: %w", err))
	}
	list := make([]Member, 0, len(resp.Members))
	for _, m := range resp.Members {
		list = append(list, of(m))
	}
	slices.SortFunc(list, func(a, b Member) int { return strings.Compare(a.Name+"\x00"+a.PeerURL, b.Name+"\x00"+b.PeerURL) })
	return list, nil
}

func of(m *etcdserverpb.Member) Member {
	return Member{Name: m.Name, PeerURL: strings.Join(m.PeerURLs, ","), Learner: m.IsLearner, id: m.ID}
}

// Add makes a node that has no data yet a member, without a vote, and returns the initial
// cluster for its first start. Until it has started, a repeated call returns the same.
func Add(ctx context.Context, client *clientv3.Client, name, peerURL string) (initialCluster string, err error) {
	if u, err := url.Parse(peerURL); err != nil || u.Host == "" || u.Port() == "" || name == "" || strings.ContainsAny(name+peerURL, ",=") {
		return "", errs.New(errs.InvalidParams, "", "a member needs a name, and a URL that others can dial: %.100q at %.100q", name, peerURL)
	}
	list, err := List(ctx, client)
	if err != nil {
		return "", err
	}
	added := false
	for _, m := range list {
		switch {
		case m.Name == "" && m.PeerURL == peerURL:
			added = true
		case m.Name == name || m.PeerURL == peerURL:
			return "", errs.New(errs.Unavailable, "", "etcd has the member %s at %s already, whose data %s does not have: "+
				"start it with its data; if these are lost: masterctl member replace %s", m.Name, m.PeerURL, name, m.Name)
		}
	}
	if !added {
		if list, err = add(ctx, client, peerURL); err != nil {
			return "", err
		}
	}
	all := make([]string, len(list))
	for i, m := range list {
		as := name
		if m.PeerURL != peerURL {
			as = fmt.Sprintf("member-%x", m.id) // any will do: etcd compares URLs
		}
		all[i] = as + "=" + m.PeerURL
	}
	return strings.Join(all, ","), nil
}

func add(ctx context.Context, client *clientv3.Client, peerURL string) ([]Member, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := client.MemberAddAsLearner(ctx, []string{peerURL})
	if errors.Is(err, rpctypes.ErrTooManyLearners) {
		return nil, errs.New(errs.Unavailable, "", "another node joins just now, and has no vote yet; if it never gets one: masterctl member remove")
	}
	if err != nil {
		return nil, errs.Wrap(errs.Unavailable, "", fmt.Errorf("adding a member to etcd: %w", err))
	}
	list := make([]Member, 0, len(resp.Members))
	for _, m := range resp.Members {
		list = append(list, of(m))
	}
	return list, nil
}

// Remove takes away the member of a name, or the one at a URL that has not started yet.
func Remove(ctx context.Context, client *clientv3.Client, name string) error {
	list, err := List(ctx, client)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(m Member) bool { return m.Name == name || m.Name == "" && m.PeerURL == name })
	if i < 0 {
		return errs.New(errs.InvalidParams, "", "etcd has no member %.100q; masterctl member list shows them", name)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err = client.MemberRemove(ctx, list[i].id); err != nil {
		return errs.Wrap(errs.Unavailable, "", fmt.Errorf("removing the member %s from etcd: %w", name, err))
	}
	return nil
}

// Spare is how many of the members that vote may still be lost, if those that are named
// are alive; below 0 there is no majority.
func Spare(list []Member, alive func(name string) bool) (voters, spare int) {
	there := 0
	for _, m := range list {
		if m.Learner {
			continue
		}
		if voters++; alive(m.Name) {
			there++
		}
	}
	return voters, there - voters/2 - 1
}
