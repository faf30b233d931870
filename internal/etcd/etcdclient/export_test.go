package etcdclient

import (
	"errors"
	"log/slog"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// NewLeaving is New with a function that leaves the member in use, as if it did not
// answer.
func NewLeaving(endpoints []string) (*clientv3.Client, func(), error) {
	m, err := connect(endpoints, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, err
	}
	return m.client, func() {
		m.mu.Lock()
		moving := m.moving
		m.moving = true
		m.mu.Unlock()
		if !moving {
			m.move(func() error { return errors.New("it does not answer") })
		}
	}, nil
}
