package etcdserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
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

// checkAddress refuses the data of a member at another address than the one that it has by
// those data. They may be a copy, as of a cloned machine, which would be the same member for
// raft: it could vote in the place of its original, and for a node that lacks what the original
// has acknowledged. Whether the original runs cannot be found out while it, or the way to it,
// is down.
func (s *Server) checkAddress() error {
	if s.Member.Name == "" || !HasData(s.DataDir) {
		return nil
	}
	id, err := ownID(s.DataDir)
	if err != nil {
		return nil //nolint:nilerr // damaged: etcd itself says it better
	}
	known, err := membersIn(s.DataDir)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	for _, m := range known {
		if m.ID != id || s.at(m.PeerURLs) {
			continue
		}
		return fmt.Errorf("the data in %s are those of the member of etcd at %s, and this node's is to be at %s: if they are a copy, start with an empty directory and --join; "+
			"if the member moves, start it at its address once more, and there: etcdctl member update %s --peer-urls=%s; "+
			"if that address is gone, start with an empty directory and --join, and then, at another member: masterctl member replace --yes %s",
			s.DataDir, m.PeerURLs[0], s.ownURL(), id, s.ownURL(), s.Member.Name)
	}
	return nil
}

// at reports whether one of a member's URLs is at this server's peer address, by TLS or not, or
// whether it was a lone server.
func (s *Server) at(urls []string) bool {
	for _, text := range urls {
		if u, err := url.Parse(text); err != nil || u.Host == s.Member.PeerAddr || text == LonePeerURL {
			return true
		}
	}
	return len(urls) == 0
}

func (s *Server) ownURL() string { return PeerURL(s.Member.PeerAddr, s.TLS) }

// ownID returns the id of the member whose data a directory has. Each file of the
// write-ahead log begins with it.
func ownID(dir string) (types.ID, error) {
	files, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil || len(files) == 0 {
		return 0, errors.Join(err, os.ErrNotExist)
	}
	f, err := os.Open(files[0])
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	decoder := wal.NewDecoder(fileutil.NewFileReader(f))
	for {
		var r walpb.Record
		if err := decoder.Decode(&r); err != nil {
			return 0, err
		}
		switch r.GetType() {
		case wal.CrcType:
			decoder.UpdateCRC(r.GetCrc())
		case wal.MetadataType:
			var ids etcdserverpb.Metadata
			err := proto.Unmarshal(r.GetData(), &ids)
			return types.ID(ids.GetNodeID()), err
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
