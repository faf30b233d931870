package etcdserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// ErrLocked says that another process uses the data directory.
var ErrLocked = errors.New("data directory is in use")

// lockName is the file in the data directory that its user locks and writes
// its process id to. The lock goes with the process, however that ends.
const lockName = "LOCK"

// lockDir creates and locks a data directory. Without the lock a second etcd
// would not fail: it would wait for ever for the database file.
func lockDir(dir string) (unlock func() error, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create data directory %s: %w; choose another one or mend its permissions", dir, err)
	}
	path := filepath.Join(dir, lockName)
	lock, err := fileutil.TryLockFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	switch {
	case errors.Is(err, fileutil.ErrLocked):
		return nil, inUse(dir, holder(path))
	case err != nil:
		return nil, fmt.Errorf("cannot write to data directory %s: %w; choose another one or mend its permissions", dir, err)
	}
	if err := errors.Join(recordHolder(lock.File), checkForeign(dir)); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock.Close, nil
}

// recordHolder writes this process's id into the lock file, for people.
func recordHolder(f *os.File) error {
	err := f.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", f.Name(), err)
	}
	return nil
}

// holder names the process that holds the lock, as far as it is known.
func holder(lockPath string) string {
	pid, err := os.ReadFile(lockPath)
	if s := strings.TrimSpace(string(pid)); err == nil && s != "" {
		return "process " + s
	}
	return "another process"
}

// checkForeign refuses a directory that an etcd uses which does not know our
// lock file, such as one started by hand on the same data.
func checkForeign(dir string) error {
	path := filepath.Join(dir, "member", "snap", "db")
	if _, err := os.Stat(path); err != nil {
		return nil // no database yet
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Millisecond})
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return inUse(dir, "another etcd")
	case err != nil:
		return nil // damaged: etcd itself says it better
	}
	return db.Close()
}

func inUse(dir, by string) error {
	return fmt.Errorf("%w: %s is locked by %s; stop that, or choose another data directory", ErrLocked, dir, by)
}
