package statefile_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote/statefile"
)

func TestNeighbours(t *testing.T) {
	root := t.TempDir()
	in := func(name string) string { return filepath.Join(root, name) }
	full, none := newPrimary(t, 3).source(), (&primary{t: t, store: metadata.New(metadata.Options{})}).source()
	save(t, open(t, in("full")), full)
	save(t, open(t, in("empty")), none)
	both := open(t, in("both"))
	save(t, both, full)
	save(t, both, none)
	damaged := open(t, in("damaged"))
	save(t, damaged, none)
	file := in("damaged/000000000001.state")
	if err := os.Truncate(file, 60); err != nil {
		t.Fatal(err)
	}
	of := full
	of.NodeID = "self"
	save(t, open(t, in("moved away")), of)
	save(t, open(t, in("self")), of)
	open(t, in("nothing"))
	if err := errors.Join(os.WriteFile(in("a file"), nil, 0o600), os.Symlink("/nowhere", in("gone"))); err != nil {
		t.Fatal(err)
	}

	got, err := statefile.Neighbours(in("self")+"/", "self")
	if err != nil {
		t.Fatal(err)
	}
	want := []statefile.Neighbour{
		{Name: "both", Path: in("both")}, {Name: "damaged", Path: in("damaged")},
		{Name: "empty", Path: in("empty"), Empty: true}, {Name: "full", Path: in("full")},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got the neighbours %+v, want %+v", got, want)
	}
	if got, err := statefile.Neighbours(in("nowhere/self"), "self"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a parent: got %v, %v, want that it is not there", got, err)
	}
}
