package etcdserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// ClaimWait is how long a node that would found an etcd listens for members of another
// one. They dial a member that is away ten times a second.
const ClaimWait = time.Second

// CheckUnclaimed fails if a new member cannot listen at its peer address, or if members of an
// etcd dial it there within wait: then it was one of them, and has lost its data. It must not
// found a second etcd beside theirs.
func CheckUnclaimed(ctx context.Context, peerAddr string, secrecy TLS, wait time.Duration) error {
	l, err := net.Listen("tcp", peerAddr)
	if err != nil {
		return fmt.Errorf("the peer address of etcd's member (--etcd-peer-listen): %w", err)
	}
	if wait == 0 {
		return l.Close()
	}
	if secrecy.Cert != "" {
		l = tls.NewListener(l, secrecy.forServer())
	}
	calls := make(chan error, 1)
	server := &http.Server{ReadHeaderTimeout: wait, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if cluster := r.Header.Get("X-Etcd-Cluster-ID"); cluster != "" {
			select {
			case calls <- fmt.Errorf("a running etcd (%.20s) calls %s as one of its members, whose data are not here", cluster, peerAddr):
			default:
			}
		}
		http.Error(w, "not started yet", http.StatusServiceUnavailable)
	})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(l) }()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case err = <-calls:
	case <-ctx.Done():
	}
	err = errors.Join(err, server.Close())
	<-ended
	return err
}
