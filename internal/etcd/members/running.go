package members

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/errs"
)

// answerTimeout bounds the wait for a member that is to go.
const answerTimeout = 2 * time.Second

// gone refuses a member that runs: one whose node does, or which answers as one of this etcd.
// A member runs before its node does, while it catches up.
func (c Cluster) gone(ctx context.Context, m Member) error {
	if c.Alive != nil && m.Name != "" {
		alive, err := c.Alive(ctx)
		if err != nil {
			return errs.Wrap(errs.Unavailable, "", err)
		}
		if alive(m.Name) {
			return errs.New(errs.Unavailable, "", "node %s runs: stop it first; one that was killed counts as running until its session ends, after up to --session-ttl", m.Name)
		}
	}
	if c.answers(ctx, m) {
		return errs.New(errs.Unavailable, "", "the member of etcd at %s answers: stop it first", m.PeerURL)
	}
	return nil
}

// Answering returns the members that the client's own member knows, and the names of those that
// answer. It needs no majority.
func (c Cluster) Answering(ctx context.Context) (list []Member, names map[string]bool, err error) {
	if list, err = ask(ctx, c.Client, clientv3.WithSerializable()); err != nil {
		return nil, nil, err
	}
	var asks sync.WaitGroup
	there := make([]bool, len(list))
	for i, m := range list {
		asks.Go(func() { there[i] = c.answers(ctx, m) })
	}
	asks.Wait()
	names = make(map[string]bool)
	for i, m := range list {
		names[m.Name] = there[i]
	}
	return list, names, nil
}

// answers reports whether a member of this etcd is at the member's address. One that hangs,
// or that has lost its data, does not answer.
func (c Cluster) answers(ctx context.Context, m Member) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.PeerURL+"/members", nil)
	if err != nil {
		return false
	}
	transport := &http.Transport{TLSClientConfig: c.TLS, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.Header.Get("X-Etcd-Cluster-ID") == strconv.FormatUint(m.cluster, 16)
}
