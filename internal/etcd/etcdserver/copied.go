package etcdserver

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"google.golang.org/protobuf/proto"
)

// copyTimeout bounds the wait for the answer of another member.
const copyTimeout = time.Second

// maxMembersBytes bounds that answer.
const maxMembersBytes = 1 << 20

// checkCopied refuses data that are a copy of those of a member that runs at another address.
// With them this server would be the same member for raft, and take its place: two of one
// name could both vote, and the first would lose its etcd.
//
// It looks at each address that this member has, by its own data and by what the others
// answer. Whoever answers there is this member: etcd gives no address to two.
func (s *Server) checkCopied(ctx context.Context) error {
	if s.Member.Name == "" || !HasData(s.DataDir) {
		return nil
	}
	self, err := ownIDs(s.DataDir)
	if err != nil {
		return nil //nolint:nilerr // damaged: etcd itself says it better
	}
	known, err := membersIn(s.DataDir)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	config, err := s.TLS.clientConfig()
	if err != nil {
		return err
	}
	asked := []string{PeerURL(s.Member.PeerAddr, s.TLS)} // this server, which does not listen yet
	var urls []string
	for _, m := range known {
		urls = append(urls, m.PeerURLs...)
	}
	for i := 0; i < len(urls); i++ {
		if slices.Contains(asked, urls[i]) {
			continue
		}
		asked = append(asked, urls[i])
		for _, m := range askMembers(ctx, urls[i], config, types.ID(self.GetClusterID())) {
			switch {
			case uint64(m.ID) != self.GetNodeID():
			case slices.Contains(m.PeerURLs, urls[i]):
				return fmt.Errorf("the data in %s are those of the member of etcd that runs at %s: if this is a copy, start with an empty directory; "+
					"if the member is to move here, stop it there first", s.DataDir, urls[i])
			default: // it has moved since
				urls = append(urls, m.PeerURLs...)
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
	defer func() { err = errors.Join(err, db.Close()) }()
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

// askMembers returns the members of etcd that the one at a URL knows: nil if nobody of this
// cluster answers.
func askMembers(ctx context.Context, url string, config *tls.Config, cluster types.ID) (list []membership.Member) {
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/members", nil)
	if err != nil {
		return nil
	}
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return nil
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.Header.Get("X-Etcd-Cluster-ID") != cluster.String() ||
		json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxMembersBytes)).Decode(&list) != nil {
		return nil
	}
	return list
}
