package statefile

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/understudy-store/understudy/internal/files"
	"github.com/understudy-store/understudy/journal"
)

// Names in the directory.
const (
	lockName   = "LOCK"    // held by the process that uses the directory; has its instance id
	memoryName = "cluster" // what the node remembers of the cluster
	suffix     = ".state"  // of files, behind a number that grows
	unfinished = ".tmp"    // of a file that is being written
)

// keep is how many files are kept in any case.
const keep = 2

// ErrNewer says that a file was written by a newer version of this program.
var ErrNewer = errors.New("it has a newer format; upgrade this node")

// A Dir is one node's directory of state files, locked against other processes.
// Not safe for concurrent use, except that Remember may run beside another method.
type Dir struct {
	// Spare is how many bytes of the disk a file must leave free; 0 for no limit. Set before
	// the first save.
	Spare uint64

	path     string
	lock     *os.File
	instance string
	whole    map[uint64]Info // of files that were read or written, by number
}

// Open locks a directory, which it creates if need be. One that can be read only
// is locked as well; saving fails there.
func Open(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	name := filepath.Join(path, lockName)
	lock, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		var e error
		if lock, e = os.Open(name); e != nil {
			return nil, err
		}
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("%s is in use by another process: %w", path, err)
	}
	d := &Dir{path: path, lock: lock, whole: make(map[uint64]Info)}
	d.identify()
	entries, _ := os.ReadDir(path) // no pattern: there may be the brackets of an address in the path
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), unfinished) {
			_ = os.Remove(filepath.Join(path, e.Name())) // of a process that was killed
		}
	}
	return d, nil
}

// identify reads the instance id, or makes one. Where it cannot be written, this
// process has one all the same, and the next one another.
func (d *Dir) identify() {
	id := make([]byte, 2*instanceBytes)
	if _, err := io.ReadFull(io.NewSectionReader(d.lock, 0, int64(len(id))), id); err == nil {
		if _, err := hex.DecodeString(string(id)); err == nil {
			d.instance = string(id)
			return
		}
	}
	random := make([]byte, instanceBytes)
	_, _ = rand.Read(random) // never fails
	d.instance = hex.EncodeToString(random)
	if _, err := d.lock.WriteAt([]byte(d.instance), 0); err == nil {
		_ = d.lock.Sync()
	}
}

const instanceBytes = 16

// Path returns the directory's path.
func (d *Dir) Path() string { return d.path }

// Instance returns a random id that stays with the directory. While it is locked no
// other process has it, unless somebody copied the directory.
func (d *Dir) Instance() string { return d.instance }

// Close unlocks the directory.
func (d *Dir) Close() error { return d.lock.Close() }

// Count returns how many state files stand in a directory, whether or not they can be
// read. One that is not there has none.
func Count(path string) (int, error) {
	numbers, err := numbersIn(path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		err = nil
	}
	return len(numbers), err
}

// numbers returns the numbers of the files, oldest first.
func (d *Dir) numbers() ([]uint64, error) { return numbersIn(d.path) }

func numbersIn(path string) ([]uint64, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var numbers []uint64
	for _, e := range entries {
		digits, ours := strings.CutSuffix(e.Name(), suffix)
		if n, err := strconv.ParseUint(digits, 10, 63); ours && err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

func (d *Dir) file(number uint64) string {
	return filepath.Join(d.path, fmt.Sprintf("%012d%s", number, suffix))
}

// prune keeps the newest files. Of the others it deletes those that are damaged, and those
// whose state is part of the one that was saved.
func (d *Dir) prune(of *Source, at journal.Head) error {
	numbers, err := d.numbers()
	if err != nil {
		return err
	}
	for _, number := range numbers[:max(0, len(numbers)-keep)] {
		var err error // of this file alone
		info, known := d.whole[number]
		if !known {
			info, err = Inspect(d.file(number))
			var io *os.PathError
			switch {
			case errors.As(err, &io), errors.Is(err, ErrNewer):
				continue // what it holds is not known
			case err == nil:
				d.whole[number] = info
			}
		}
		if err == nil && !of.supersedes(at, info) {
			continue
		}
		if os.Remove(d.file(number)) == nil { // else with the next save
			delete(d.whole, number)
		}
	}
	return nil
}

// supersedes reports whether the state at a head has all that a file leads to: it is of
// the same history, or of one that was founded from there or behind it.
func (of *Source) supersedes(at journal.Head, file Info) bool {
	head := file.Head
	switch {
	case file.Cluster != of.ClusterID:
		return false
	case head.Seq == 0:
		return true
	case head.History.Is(at.History):
		return head.Seq <= at.Seq && head.Term <= at.Term // a branch may be behind in one of them alone
	}
	ancestors := append([]journal.Ancestor{{History: at.Parent, Fork: at.Fork}}, of.Ancestors...)
	return slices.ContainsFunc(ancestors, func(a journal.Ancestor) bool { return a.History == head.History && head.Seq <= a.Fork })
}

// Remember keeps what the node knows of the cluster, in place of what it kept before.
func (d *Dir) Remember(b []byte) error {
	name := filepath.Join(d.path, memoryName)
	f, err := os.OpenFile(name+unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return files.Place(f, name, err, nil)
}

// Memory returns what was remembered last, nil for nothing.
func (d *Dir) Memory() ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(d.path, memoryName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}
