package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
)

// Backup saves the data of the lone member of etcd to a file, as "etcdctl snapshot save"
// does.
func (c *Cluster) Backup(ctx context.Context) (file string, err error) {
	out, err := os.CreateTemp(c.Dir, "backup-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = out.Close() }()
	data, err := c.Client.Snapshot(ctx)
	if err != nil {
		return "", fmt.Errorf("saving a backup of etcd: %w", err)
	}
	defer func() { _ = data.Close() }()
	if _, err := io.Copy(out, data); err != nil {
		return "", fmt.Errorf("saving a backup of etcd: %w", err)
	}
	return out.Name(), out.Close()
}

// Wipe deletes the data of all members of etcd. They must be down.
func (c *Cluster) Wipe() error {
	for _, m := range c.Members {
		if err := os.RemoveAll(c.data(m)); err != nil {
			return err
		}
	}
	return nil
}

// Restore replaces the data of the lone member by a backup, as "etcdutl snapshot restore"
// does. It adds bump to the revision. The member must be down. It starts as another etcd
// cluster.
func (c *Cluster) Restore(file string, bump uint64) error {
	if err := c.Wipe(); err != nil {
		return err
	}
	return snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: c.data(c.Members[0]), Name: "restored", PeerURLs: []string{etcdserver.LonePeerURL},
		InitialCluster: "restored=" + etcdserver.LonePeerURL, InitialClusterToken: filepath.Base(file), RevisionBump: bump, MarkCompacted: bump > 0,
	})
}

func (c *Cluster) data(m *Member) string {
	if c.Embedded {
		return filepath.Join(c.Dir, c.Names[0], "data", "etcd")
	}
	return filepath.Join(c.Dir, m.Name, "data")
}
