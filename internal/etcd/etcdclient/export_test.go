package etcdclient

import clientv3 "go.etcd.io/etcd/client/v3"

// NewLeaving is New with a function that leaves the member in use.
func NewLeaving(endpoints []string) (*clientv3.Client, func(), error) {
	m, err := connect(endpoints)
	if err != nil {
		return nil, nil, err
	}
	return m.client, func() { m.leave(m.current()) }, nil
}
