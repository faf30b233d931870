package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// memberMark is the file in the data directory of a node that was a member of an etcd of
// several nodes. It stands beside etcd's own directory, so it stays when that is moved away.
func (a *App) memberMark() string { return filepath.Join(a.cfg.Node.DataDir, "etcd-member") }

// markMember leaves the mark: this node has had a vote.
func (a *App) markMember() error {
	path := a.memberMark()
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	text := fmt.Sprintf("The etcd of this node was a member of that of cluster %s. While this file is here, no other etcd is founded.\n", a.cfg.HA.ClusterID)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing that this node is a member of etcd: %w", err)
	}
	return nil
}

// mayFound refuses to found an etcd on a node that was a member of one before: that etcd may
// run without this node.
func (a *App) mayFound() error {
	path := a.memberMark()
	_, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--data-dir cannot be used, looking whether this node was a member of etcd: %w", err)
	}
	return fmt.Errorf("%s says that this node was a member of an etcd, whose data are gone, so it founds none: to join that again: "+
		"--join alone, and masterctl member replace --yes %s; if no other node has its data, delete this file", path, a.cfg.Node.ID)
}
