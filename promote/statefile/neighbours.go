package statefile

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A Neighbour is the directory of another node, beside that of a node, with state files in
// it, whether or not they can be read.
type Neighbour struct {
	Name  string // of the directory: by default the node's id
	Path  string
	Empty bool // each file holds a state before the first commit
}

// Neighbours returns the neighbours of a node's directory. One in which this very node wrote
// all files is left out: somebody has moved it away.
func Neighbours(path, nodeID string) (list []Neighbour, err error) {
	path = filepath.Clean(path)
	parent := filepath.Dir(path)
	entries, err := os.ReadDir(parent)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		dir := filepath.Join(parent, e.Name())
		if dir == path {
			continue
		}
		numbers, err := numbersIn(dir)
		if err == nil && len(numbers) == 0 || errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		n, own := Neighbour{Name: e.Name(), Path: dir, Empty: err == nil}, err == nil
		for _, number := range numbers {
			by, empty := begins((&Dir{path: dir}).file(number))
			n.Empty, own = n.Empty && empty, own && by == nodeID
		}
		if !own {
			list = append(list, n)
		}
	}
	return list, nil
}

// begins reads the beginning of a file: by which node it is, and whether its state is one
// before the first commit. Of a file that cannot be read it knows neither.
func begins(name string) (nodeID string, empty bool) {
	f, err := os.Open(name)
	if err != nil {
		return "", false
	}
	defer func() { _ = f.Close() }()
	stat, err := f.Stat()
	if err != nil {
		return "", false
	}
	r, err := newReader(f, stat.Size())
	if err != nil {
		return "", false
	}
	var who header
	if kind, payload, err := r.frame(); err != nil || kind != frameHeader || json.Unmarshal(payload, &who) != nil {
		return "", false
	}
	kind, payload, err := r.frame()
	if err != nil {
		return "", false
	}
	var last end
	empty = kind == frameEnd && json.Unmarshal(payload, &last) == nil && last.Head.Seq == 0
	return who.Node, empty
}
