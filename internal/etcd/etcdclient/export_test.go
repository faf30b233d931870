package etcdclient

import (
	"context"
	"log/slog"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// NewLeaving is New with functions that leave the member in use: for the next one, as if
// it had answered in its place, and if the member in use does not answer.
func NewLeaving(endpoints []string) (client *clientv3.Client, next, leave func(), err error) {
	m, err := connect(context.Background(), endpoints, Access{}, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, nil, err
	}
	move := func(choose func(int) (int, bool)) func() {
		return func() {
			m.mu.Lock()
			moving := m.moving
			m.moving = true
			m.mu.Unlock()
			if !moving {
				m.move(choose)
			}
		}
	}
	return m.client, move(func(from int) (int, bool) { return (from + 1) % len(m.all), true }), move(m.choose), nil
}
