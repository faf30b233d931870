// Package members adds, replaces and removes members of the nodes' own etcd: each node runs
// one. A member joins without a vote, as a learner; package etcdserver has it vote when it
// has caught up.
//
// It must never remove a member that runs. etcd itself refuses to remove one that a
// majority needs.
package members

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
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
	cluster uint64 // the etcd's
}

// List returns the members, by name. It needs a majority of them.
func List(ctx context.Context, client *clientv3.Client) ([]Member, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return ask(ctx, client)
}

// ask returns the members, by name: those that the client's member knows itself with
// clientv3.WithSerializable, else those that a majority agrees on.
func ask(ctx context.Context, client *clientv3.Client, options ...clientv3.OpOption) ([]Member, error) {
	resp, err := client.MemberList(ctx, options...)
	if err != nil {
		return nil, errs.Wrap(errs.Unavailable, "", fmt.Errorf("asking etcd for its members: %w", err))
	}
	list := listOf(resp.Header, resp.Members)
	slices.SortFunc(list, func(a, b Member) int { return strings.Compare(a.Name+"\x00"+a.PeerURL, b.Name+"\x00"+b.PeerURL) })
	return list, nil
}

func listOf(h *etcdserverpb.ResponseHeader, members []*etcdserverpb.Member) []Member {
	list := make([]Member, 0, len(members))
	for _, m := range members {
		list = append(list, Member{Name: m.Name, PeerURL: strings.Join(m.PeerURLs, ","), Learner: m.IsLearner, id: m.ID, cluster: h.GetClusterId()})
	}
	return list
}

// A Cluster is the etcd whose members change.
type Cluster struct {
	Client *clientv3.Client
	// Replaced is the prefix of the keys that name members whose nodes may join anew.
	Replaced string
	// Alive returns which nodes run, by what they have registered; nil if nobody knows.
	Alive func(ctx context.Context) (func(name string) bool, error)
	// TLS is for asking members whether they run; nil for plain text.
	TLS *tls.Config
}

// Add makes a node that has no data yet a member, without a vote, and returns the initial
// cluster for its first start. Until it has started, a repeated call returns the same. It
// takes away the member whose place the node has, if Replace named that one.
func (c Cluster) Add(ctx context.Context, name, peerURL string) (initialCluster string, err error) {
	if u, err := url.Parse(peerURL); err != nil || u.Host == "" || u.Port() == "" || name == "" || strings.ContainsAny(name+peerURL, ",=") {
		return "", errs.New(errs.InvalidParams, "", "a member needs a name, and a URL that others can dial: %.100q at %.100q", name, peerURL)
	}
	list, err := List(ctx, c.Client)
	if err != nil {
		return "", err
	}
	added := false
	for _, m := range list {
		switch {
		case m.Name == "" && m.PeerURL == peerURL:
			added = true
		case m.Name == name || m.PeerURL == peerURL:
			if err := c.makeRoom(ctx, m, name); err != nil {
				return "", err
			}
		}
	}
	if !added {
		if list, err = add(ctx, c.Client, peerURL); err != nil {
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
	if errors.Is(err, rpctypes.ErrUnhealthy) {
		return nil, errs.New(errs.Unavailable, "", "etcd takes no member in until all that it has have been connected for 5 s: wait; masterctl member list shows one that is away")
	}
	if err != nil {
		return nil, errs.Wrap(kindOf(err), "", fmt.Errorf("adding a member to etcd: %w", err))
	}
	return listOf(resp.Header, resp.Members), nil
}

// makeRoom removes the member in whose place a node joins, if an operator has allowed that.
func (c Cluster) makeRoom(ctx context.Context, m Member, name string) error {
	key := c.Replaced + m.Name
	get, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := c.Client.Get(get, key)
	if err != nil {
		return errs.Wrap(errs.Unavailable, "", fmt.Errorf("asking etcd whether %s may be replaced: %w", m.Name, err))
	}
	if len(resp.Kvs) == 0 || string(resp.Kvs[0].Value) != m.key() {
		return errs.New(errs.Unavailable, "", "etcd has the member %s at %s already, whose data %s does not have: "+
			"start it with its data; if these are lost: masterctl member replace %s", m.Name, m.PeerURL, name, m.Name)
	}
	if err := c.remove(ctx, m); err != nil {
		return err
	}
	_, _ = c.Client.Delete(get, key) // it names a member that is gone, so it says nothing any more
	return nil
}

// key is the value of the key that lets a member be replaced: its id, so that no later member
// of the same name may be.
func (m Member) key() string { return strconv.FormatUint(m.id, 16) }

// Replace lets a node that has lost its data join anew under the name of a member that is
// gone. The member stays until then: the others call it, so a node at its address that
// would found another etcd notices. One that has never started is taken away at once.
func (c Cluster) Replace(ctx context.Context, name string) error {
	m, err := c.find(ctx, name)
	if err != nil {
		return err
	}
	if m.Name == "" {
		return c.remove(ctx, m)
	}
	if err := c.gone(ctx, m); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := c.Client.Put(ctx, c.Replaced+m.Name, m.key()); err != nil {
		return errs.Wrap(kindOf(err), "", fmt.Errorf("writing to etcd that %s may be replaced: %w", name, err))
	}
	return nil
}

// Returned ends an order that a member may be replaced: it runs, with its data.
func (c Cluster) Returned(ctx context.Context, name string) error {
	m, err := c.find(ctx, name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	key := c.Replaced + m.Name
	_, err = c.Client.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", m.key())).Then(clientv3.OpDelete(key)).Commit()
	return err
}

// Remove takes away the member of a name, or the one at a URL that has not started yet.
func (c Cluster) Remove(ctx context.Context, name string) error {
	m, err := c.find(ctx, name)
	if err != nil {
		return err
	}
	return c.remove(ctx, m)
}

// kindOf is the kind of failure of a change: Unavailable if etcd surely did not make it,
// else Unresolved.
func kindOf(err error) errs.Kind {
	for _, refusal := range []error{
		rpctypes.ErrUnhealthy, rpctypes.ErrMemberNotEnoughStarted, rpctypes.ErrMemberNotFound, rpctypes.ErrMemberExist, rpctypes.ErrPeerURLExist, rpctypes.ErrPermissionDenied,
	} {
		if errors.Is(err, refusal) {
			return errs.Unavailable
		}
	}
	return errs.Unresolved
}

func (c Cluster) find(ctx context.Context, name string) (Member, error) {
	list, err := List(ctx, c.Client)
	if err != nil {
		return Member{}, err
	}
	i := slices.IndexFunc(list, func(m Member) bool { return m.Name == name || m.Name == "" && m.PeerURL == name })
	if i < 0 {
		names := make([]string, len(list))
		for i, m := range list {
			names[i] = cmp.Or(m.Name, m.PeerURL)
		}
		return Member{}, errs.New(errs.InvalidParams, "", "etcd has no member %.100q; there are %s", name, strings.Join(names, ", "))
	}
	return list[i], nil
}

func (c Cluster) remove(ctx context.Context, m Member) error {
	if err := c.gone(ctx, m); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := c.Client.MemberRemove(ctx, m.id); err != nil && !errors.Is(err, rpctypes.ErrMemberNotFound) {
		return errs.Wrap(kindOf(err), "", fmt.Errorf("removing the member %s from etcd: %w", cmp.Or(m.Name, m.PeerURL), err))
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
