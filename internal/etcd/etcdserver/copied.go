package etcdserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"google.golang.org/protobuf/proto"
)

const (
	// askTimeout bounds the wait for the answer of another member, copyTimeout that for all.
	askTimeout  = time.Second
	copyTimeout = 3 * time.Second
	// maxMembersBytes bounds such an answer.
	maxMembersBytes = 1 << 20
	// copyLook is how often a server looks whether its member runs twice: more often until
	// it has joined, since then it may have voted in the place of another one.
	copyLook, joinedLook = time.Second, 5 * time.Second
)

// A copied directory has the id of a member in it. A server with it would be the same member
// for raft, and take its place: two of one id could both vote, and the first would lose its
// etcd. So a server does not start, or ends, where its member answers at another address: by
// its own data, or by the list of any other member. Of two that run, the one that is not at
// the address which etcd has for it ends. A member that nobody can reach is not found.

// checkCopied refuses data that are a copy of those of a member that runs at another address,
// or hangs there.
func (s *Server) checkCopied(ctx context.Context) error {
	if s.Member.Name == "" || !HasData(s.DataDir) {
		return nil
	}
	ids, err := ownIDs(s.DataDir)
	if err != nil {
		return nil //nolint:nilerr // damaged: etcd itself says it better
	}
	known, err := membersIn(s.DataDir)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	others, err := s.peerClient(types.ID(ids.GetNodeID()), types.ID(ids.GetClusterID()))
	if err != nil {
		return err
	}
	defer others.CloseIdleConnections()
	if err := s.runsTwice(ctx, others, known); err != nil {
		return err
	}
	for _, m := range known {
		for _, url := range m.PeerURLs {
			if m.ID == others.id && url != s.ownURL() && others.hangs(ctx, url) {
				return fmt.Errorf("somebody listens at %s and does not answer: the member of etcd whose data are in %s was there last; stop it first, or start with an empty directory",
					url, s.DataDir)
			}
		}
	}
	return nil
}

// watchCopies ends the server when its member runs at another address, until the context ends.
func (s *Server) watchCopies(ctx context.Context) {
	etcd := s.etcd.Server
	others, err := s.peerClient(etcd.MemberID(), etcd.Cluster().ID())
	if err != nil {
		return // etcd itself could not have started with these files
	}
	defer others.CloseIdleConnections()
	tick := time.NewTicker(copyLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.runsTwice(ctx, others, s.members()); err != nil && ctx.Err() == nil {
			s.copied <- fmt.Errorf("embedded etcd in %s no longer serves: %w", s.DataDir, err)
			return
		}
		if s.joined.Load() {
			tick.Reset(joinedLook)
		}
	}
}

// members returns those that this server knows.
func (s *Server) members() (list []membership.Member) {
	for _, m := range s.etcd.Server.Cluster().Members() {
		list = append(list, *m)
	}
	return list
}

func (s *Server) ownURL() string { return PeerURL(s.Member.PeerAddr, s.TLS) }

// runsTwice returns where the member runs besides this server, as an error that says what to
// do. It looks at each address that the member has by a list, and by those of others.
func (s *Server) runsTwice(ctx context.Context, others peerClient, known []membership.Member) error {
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	asked := []string{s.ownURL()}
	var urls []string
	for _, m := range known {
		urls = append(urls, m.PeerURLs...)
	}
	for i := 0; i < len(urls); i++ {
		if slices.Contains(asked, urls[i]) {
			continue
		}
		asked = append(asked, urls[i])
		for _, m := range others.members(ctx, urls[i]) {
			switch {
			case m.ID != others.id:
			case !slices.Contains(m.PeerURLs, urls[i]): // it has moved since
				urls = append(urls, m.PeerURLs...)
			case others.isSelf(ctx, urls[i]):
				return fmt.Errorf("the data in %s are those of the member of etcd that runs at %s: if this is a copy, start with an empty directory; "+
					"if the member is to move here, stop it there first", s.DataDir, urls[i])
			}
		}
	}
	return nil
}

// ownIDs returns the ids of the member, and of its cluster, whose data a directory has. Each
// file of the write-ahead log begins with them.
func ownIDs(dir string) (*etcdserverpb.Metadata, error) {
	files, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, os.ErrNotExist)
	}
	f, err := os.Open(files[0])
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	decoder := wal.NewDecoder(fileutil.NewFileReader(f))
	for {
		var r walpb.Record
		if err := decoder.Decode(&r); err != nil {
			return nil, err
		}
		switch r.GetType() {
		case wal.CrcType:
			decoder.UpdateCRC(r.GetCrc())
		case wal.MetadataType:
			ids := new(etcdserverpb.Metadata)
			return ids, proto.Unmarshal(r.GetData(), ids)
		}
	}
}

// membersIn returns the members that a directory's database has.
func membersIn(dir string) (list []membership.Member, err error) {
	db, err := bbolt.Open(filepath.Join(dir, "member", "snap", "db"), 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Millisecond})
	if err != nil {
		return nil, err
	}
	defer func() {
		if cause := recover(); cause != nil { // damaged
			err = fmt.Errorf("reading the members in %s: %v", dir, cause)
		}
		err = errors.Join(err, db.Close())
	}()
	return list, db.View(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte("members"))
		if bucket == nil {
			return nil
		}
		return bucket.ForEach(func(_, v []byte) error {
			var m membership.Member
			if err := json.Unmarshal(v, &m); err != nil {
				return err
			}
			list = append(list, m)
			return nil
		})
	})
}

// A peerClient asks the members of one etcd, as a member with an id.
type peerClient struct {
	*http.Transport
	id, cluster types.ID
}

func (s *Server) peerClient(id, cluster types.ID) (peerClient, error) {
	config, err := s.TLS.clientConfig()
	return peerClient{&http.Transport{TLSClientConfig: config, DialContext: s.dialOther}, id, cluster}, err
}

// dialOther connects to another server than this one, which may have several addresses.
func (s *Server) dialOther(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: askTimeout}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil || s.etcd == nil {
		return conn, err
	}
	for _, own := range s.etcd.Peers {
		if own.Addr().String() == conn.RemoteAddr().String() {
			return nil, errors.Join(fmt.Errorf("%s is this server", address), conn.Close())
		}
	}
	return conn, nil
}

// get asks the member at a URL. It fails if nobody of this etcd answers.
func (c peerClient) get(ctx context.Context, url string) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	for key, value := range map[string]string{
		"X-Server-From": c.id.String(), "X-Raft-To": c.id.String(), "X-Etcd-Cluster-ID": c.cluster.String(),
		"X-Server-Version": version.Version, "X-Min-Cluster-Version": version.MinClusterVersion,
	} {
		r.Header.Set(key, value)
	}
	resp, err := c.RoundTrip(r)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.Header.Get("X-Etcd-Cluster-ID") != c.cluster.String() {
		return 0, nil, fmt.Errorf("%s answers as none of this etcd", url)
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxMembersBytes))
	return resp.StatusCode, body, err
}

// members returns the members that the one at a URL knows; nil if it does not answer.
func (c peerClient) members(ctx context.Context, url string) (list []membership.Member) {
	_, body, err := c.get(ctx, url+"/members")
	if err != nil || json.Unmarshal(body, &list) != nil {
		return nil
	}
	return list
}

// isSelf reports whether the member at a URL has this one's id. It asks for the stream of
// messages to itself: no member is a peer of itself, so that one finds no such sender (404),
// while all others do, and find that another receiver is meant (412).
func (c peerClient) isSelf(ctx context.Context, url string) bool {
	status, _, err := c.get(ctx, url+rafthttp.RaftStreamPrefix+"/message/"+c.id.String())
	return err == nil && status == http.StatusNotFound
}

// hangs reports whether somebody listens at a URL and does not answer, as a process does that
// is stopped, and unlike a host that is gone.
func (c peerClient) hangs(ctx context.Context, url string) bool {
	if _, _, err := c.get(ctx, url+"/members"); !errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	_, address, _ := strings.Cut(url, "://")
	conn, err := c.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
