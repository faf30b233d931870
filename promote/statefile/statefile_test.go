package statefile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote/statefile"
	"github.com/understudy-store/understudy/segment"
)

var codec = journal.Codec{
	metadata.LeaseRenewals: leasesync.Decode,
	metadata.ObjectEvents: func(b []byte) (metadata.Change, error) {
		return metadata.DecodeObjectEvent(b, eviction.NewCutoff)
	},
	metadata.DeleteEvents: deleteevents.Decode,
}

// A primary is a store with the commits that made it, as a journal keeps them.
type primary struct {
	t       testing.TB
	store   *metadata.Store
	commits []*metadata.Commit
	objects int
}

func newPrimary(t testing.TB, objects int) *primary {
	p := &primary{t: t, store: metadata.New(metadata.Options{})}
	p.store.StartIDs(1)
	p.begin(1)
	mount, err := p.store.PrepareMount(segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1 << 32, Size: 1 << 30, Endpoint: "a:1"})
	if err != nil {
		t.Fatal(err)
	}
	p.commit(mount)
	for range objects {
		p.put()
	}
	return p
}

func (p *primary) commit(changes ...metadata.Change) {
	p.t.Helper()
	at := p.store.Position()
	c := &metadata.Commit{Seq: at.Seq + 1, Term: max(at.Term, 1), Time: at.Time + 1, Changes: changes}
	for _, change := range changes {
		if start, begins := change.(*metadata.TermStart); begins {
			c.Term = start.Term
		}
	}
	answers := make([]error, len(changes))
	if _, err := p.store.Apply(c, answers); err != nil || slices.ContainsFunc(answers, func(err error) bool { return err != nil }) {
		p.t.Fatal(err, answers)
	}
	p.commits = append(p.commits, c)
}

// begin begins a term, as a node does that takes over from this state.
func (p *primary) begin(term metadata.Term) {
	p.t.Helper()
	times := metadata.Params{LeaseTTL: time.Second, DiscardTimeout: time.Second, ReleaseTimeout: time.Minute}
	p.commit(&metadata.TermStart{Term: term, Params: times, Guard: time.Second})
}

func (p *primary) put() {
	p.t.Helper()
	p.objects++
	put := &metadata.Put{Tenant: metadata.DefaultTenant, Key: fmt.Sprint("k", p.objects), Size: 100, Replicas: 1}
	start, _, _, err := p.store.PreparePutStart(put, p.store.Time())
	if err != nil {
		p.t.Fatal(err)
	}
	p.commit(start)
}

func (p *primary) at() journal.Cursor {
	at := p.store.Position()
	return inTerm(at.Term, at.Seq)
}

// inTerm is where a commit of a term stands in the journal.
func inTerm(term metadata.Term, seq metadata.Seq) journal.Cursor {
	c := cursor(seq)
	c.Head.Term = term
	return c
}

// cursor is inTerm of the first one.
func cursor(seq metadata.Seq) journal.Cursor {
	return journal.Cursor{Head: journal.Head{Term: metadata.Term(min(seq, 1)), Seq: seq}, Revision: 100 + int64(seq)}
}

func (p *primary) read(_ context.Context, behind journal.Cursor, f journal.Consumer) error {
	for _, c := range p.commits[behind.Head.Seq:] {
		if err := f.Commit(c, inTerm(c.Term, c.Seq)); err != nil {
			return err
		}
	}
	return errors.New("the journal ends")
}

func (p *primary) source() statefile.Source {
	return statefile.Source{
		ClusterID: "test", NodeID: "n", Store: p.store, At: p.at, Read: p.read, Valid: func() error { return nil },
	}
}

func open(t *testing.T, path string) *statefile.Dir {
	t.Helper()
	d, err := statefile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func save(t *testing.T, d *statefile.Dir, of statefile.Source) journal.Cursor {
	t.Helper()
	at, err := d.Save(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// load returns the newest state, and the files that were passed over.
func load(t *testing.T, d *statefile.Dir) (s *statefile.State, skipped []string) {
	t.Helper()
	s, err := d.Load("test", metadata.Options{}, codec, func(file string, _ error) { skipped = append(skipped, filepath.Base(file)) })
	if err != nil {
		t.Fatal(err)
	}
	return s, skipped
}

func TestSavedStateIsLoaded(t *testing.T) {
	p, d := newPrimary(t, 300), open(t, filepath.Join(t.TempDir(), "a", "b"))
	if s, skipped := load(t, d); s != nil || skipped != nil {
		t.Fatalf("an empty directory holds %+v, %v; want nothing", s, skipped)
	}
	at := save(t, d, p.source())
	s, skipped := load(t, d)
	if s == nil || skipped != nil {
		t.Fatalf("loaded %+v, passed over %v; want a state, and nothing passed over", s, skipped)
	}
	if got, want := s.Store.Position(), p.store.Position(); got != want || s.At != at || at != p.at() {
		t.Errorf("loaded %+v at %+v, want %+v at %+v", got, s.At, want, p.at())
	}
	for _, name := range []string{".", "LOCK", "000000000001.state"} {
		info, err := os.Stat(filepath.Join(d.Path(), name))
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: got %v, %v; want a mode that others cannot read", name, info, err)
		}
	}
}

// The state before the first commit says where the journal begins.
func TestSavingBeforeTheFirstCommit(t *testing.T) {
	d, p := open(t, t.TempDir()), &primary{t: t, store: metadata.New(metadata.Options{})}
	save(t, d, p.source())
	if s, _ := load(t, d); s == nil || s.At != cursor(0) || s.Store.Position() != p.store.Position() {
		t.Errorf("loaded %+v, want the newest, at %+v", s, p.store.Position())
	}
}

// ticking calls f each time somebody asks whether the context has ended, which
// Save does in front of each part.
type ticking struct {
	context.Context
	f func()
}

func (c ticking) Err() error {
	c.f()
	return c.Context.Err()
}

// Commits between the parts are in the file, so that it stands on its own.
func TestSavingDuringCommits(t *testing.T) {
	p, d := newPrimary(t, 300), open(t, t.TempDir())
	asked := 0
	at, err := d.Save(ticking{t.Context(), func() {
		if asked++; asked%50 == 0 {
			p.put()
		}
	}}, p.source())
	if err != nil {
		t.Fatal(err)
	}
	through := p.store.Position()
	p.put() // behind the file
	s, _ := load(t, d)
	if s == nil || s.Store.Position() != through || s.At != at || at != cursor(through.Seq) {
		t.Fatalf("loaded %+v, want %+v", s, through)
	}
	if _, err := s.Store.Apply(p.commits[through.Seq], nil); err != nil || s.Store.Position() != p.store.Position() {
		t.Errorf("going on: %v, at %+v, want %+v", err, s.Store.Position(), p.store.Position())
	}
}

func TestTheLastTwoAreKept(t *testing.T) {
	p, d := newPrimary(t, 1), open(t, t.TempDir())
	for range 4 {
		p.put()
		save(t, d, p.source())
	}
	files, _ := filepath.Glob(filepath.Join(d.Path(), "*"))
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	if want := []string{"000000000003.state", "000000000004.state", "LOCK"}; !slices.Equal(files, want) {
		t.Errorf("files %v, want %v", files, want)
	}
}

// Saves delete the files that they supersede, of the same journal or of one that was
// founded behind them, and those that are damaged. They keep all others.
func TestOtherFilesAreKept(t *testing.T) {
	p, d := newPrimary(t, 1), open(t, t.TempDir())
	in := func(h journal.Head) statefile.Source {
		of := p.source()
		of.At = func() journal.Cursor {
			at := p.at()
			at.Head.History, at.Head.Parent, at.Head.Fork = h.History, h.Parent, h.Fork
			return at
		}
		return of
	}
	p.put()
	save(t, d, in(journal.Head{History: "a"}))
	other := in(journal.Head{History: "z"})
	save(t, d, other)
	other.ClusterID = "other"
	save(t, d, other)
	damaged := filepath.Join(d.Path(), "000000000004.state")
	unreadable := filepath.Join(d.Path(), "000000000005.state")
	if err := errors.Join(os.WriteFile(damaged, []byte("understudy state"), 0o600), os.Mkdir(unreadable, 0o700)); err != nil {
		t.Fatal(err)
	}
	fork := p.store.Position().Seq
	p.put()
	d = reopened(t, d)
	of := in(journal.Head{History: "c", Parent: "b", Fork: fork + 1})
	for _, step := range []struct {
		ancestors []journal.Ancestor
		want      string
	}{
		{nil, "1 2 3 5 6 7"},
		{[]journal.Ancestor{{History: "a", Fork: fork - 1}}, "1 2 3 5 7 8"},
		{[]journal.Ancestor{{History: "a", Fork: fork}}, "2 3 5 8 9"},
	} {
		of.Ancestors = step.ancestors
		if save(t, d, of); step.ancestors == nil {
			save(t, d, of)
		}
		files, _ := filepath.Glob(filepath.Join(d.Path(), "*.state"))
		for i, file := range files {
			files[i] = strings.TrimLeft(strings.TrimSuffix(filepath.Base(file), ".state"), "0")
		}
		if got := strings.Join(files, " "); got != step.want {
			t.Errorf("ancestors %v: the files are %s, want %s", step.ancestors, got, step.want)
		}
	}
}

// reopened returns a directory as another process finds it.
func reopened(t *testing.T, d *statefile.Dir) *statefile.Dir {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, d.Path())
}

// A damaged file is passed over wherever the damage is, and the one before it loaded.
func TestDamagedFile(t *testing.T) {
	p, d := newPrimary(t, 20), open(t, t.TempDir())
	older := save(t, d, p.source())
	asked := 0
	if _, err := d.Save(ticking{t.Context(), func() {
		if asked++; asked%300 == 0 {
			p.put()
		}
	}}, p.source()); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(d.Path(), "000000000002.state")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := statefile.Inspect(name); err != nil || info.Cluster != "test" || info.Node != "n" || info.Head.Seq <= older.Head.Seq || info.Bytes != int64(len(whole)) {
		t.Errorf("looking into the whole file: got %+v, %v; want cluster \"test\", node \"n\", beyond sequence %d, %d bytes", info, err, older.Head.Seq, len(whole))
	}
	renamed := bytes.Replace(whole, []byte(`"node_id":"n"`), []byte(`"node_id":"m"`), 1) // only the checksum shows it
	damage := map[string][]byte{"empty": nil, "another name": renamed, "a byte more": append(slices.Clone(whole), 0)}
	for i := 0; i < len(whole); i += 1 + len(whole)/60 {
		damage[fmt.Sprintf("cut at %d", i)] = whole[:i]
		if i < 15 || i > 16 { // the version
			flipped := slices.Clone(whole)
			flipped[i] ^= 1
			damage[fmt.Sprintf("bit flipped at %d", i)] = flipped
		}
	}
	for what, b := range damage {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, skipped := load(t, d)
		if s == nil || s.At != older || !slices.Equal(skipped, []string{"000000000002.state"}) {
			t.Errorf("%s: loaded %+v, passed over %v; want the older file, and the damaged one passed over", what, s, skipped)
		}
		if info, err := statefile.Inspect(name); err == nil {
			t.Errorf("%s: looking into the damaged file: got %+v and no error, want one", what, info)
		}
	}
}

func TestNewerFormatIsLeftAlone(t *testing.T) {
	p, d := newPrimary(t, 1), open(t, t.TempDir())
	save(t, d, p.source())
	name := filepath.Join(d.Path(), "000000000002.state")
	if err := os.WriteFile(name, []byte("understudy state\x02and more"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Load("test", metadata.Options{}, codec, nil); !errors.Is(err, statefile.ErrNewer) {
		t.Errorf("loading: got %v, want ErrNewer", err)
	}
	for range 3 {
		if _, err := d.Save(t.Context(), p.source()); !errors.Is(err, statefile.ErrNewer) {
			t.Errorf("saving: got %v, want ErrNewer", err)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(d.Path(), "*.state*")); len(files) != 2 {
		t.Errorf("got files %v, want the 2 newest", files)
	}
}

func TestStateOfAnotherCluster(t *testing.T) {
	p, d := newPrimary(t, 1), open(t, t.TempDir())
	of := p.source()
	of.ClusterID = "other"
	save(t, d, of)
	if s, skipped := load(t, d); s != nil || len(skipped) != 1 {
		t.Errorf("loaded %+v, passed over %v; want nothing loaded, and one file passed over", s, skipped)
	}
}

// What cannot be saved leaves nothing behind.
func TestFailedSave(t *testing.T) {
	p, d := newPrimary(t, 1), open(t, t.TempDir())
	failed := errors.New("failed")
	invalid, cut := p.source(), p.source()
	invalid.Valid = func() error { return failed }
	cut.At = func() journal.Cursor { return cursor(p.store.Position().Seq - 1) }
	cut.Read = func(context.Context, journal.Cursor, journal.Consumer) error { return failed }
	for _, of := range []statefile.Source{invalid, cut} {
		if _, err := d.Save(t.Context(), of); !errors.Is(err, failed) {
			t.Errorf("saving: got %v, want %v", err, failed)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(d.Path(), "*.*")); files != nil {
		t.Errorf("got files %v, want none", files)
	}
}

// Beside etcd's data a state that would fill the disk is not saved.
func TestSavingLeavesSpace(t *testing.T) {
	p, d := newPrimary(t, 1), open(t, t.TempDir())
	d.Spare = 1 << 60
	if _, err := d.Save(t.Context(), p.source()); err == nil || !strings.Contains(err.Error(), "must be left") {
		t.Errorf("saving: got %v, want that the disk is too full", err)
	}
	if files, _ := filepath.Glob(filepath.Join(d.Path(), "*.*")); files != nil {
		t.Errorf("got files %v, want none", files)
	}
	d.Spare = 1
	if _, err := d.Save(t.Context(), p.source()); err != nil {
		t.Errorf("saving, with space on the disk: got %v, want no error", err)
	}
}

func TestOneProcessPerDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "[::1]:50051") // a node is named by its address
	leftover := filepath.Join(path, "000000000001.state.tmp")
	if err := errors.Join(os.Mkdir(path, 0o700), os.WriteFile(leftover, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	d := open(t, path)
	if _, err := os.Stat(leftover); !os.IsNotExist(err) {
		t.Errorf("the file of an earlier process: got %v, want that it is gone", err)
	}
	if other, err := statefile.Open(path); err == nil {
		t.Error("a second process opened the directory, want it refused while the first has it")
		_ = other.Close()
	}
	instance := d.Instance()
	_ = d.Close()
	if again := open(t, path); len(instance) != 32 || again.Instance() != instance {
		t.Errorf("instance %q, then %q; want one of 32 letters, and the same again", instance, again.Instance())
	}
	if elsewhere := open(t, t.TempDir()); elsewhere.Instance() == instance {
		t.Errorf("two directories: got the instance id %q for both, want one for each", instance)
	}
}

// That one file cannot be read says nothing of the next.
func TestFilesBesideUnreadableOnesAreKept(t *testing.T) {
	p, d := newPrimary(t, 1), open(t, t.TempDir())
	in := func(history journal.History) statefile.Source {
		of := p.source()
		of.At = func() journal.Cursor {
			at := p.at()
			at.Head.History = history
			return at
		}
		return of
	}
	if err := os.Mkdir(filepath.Join(d.Path(), "000000000001.state"), 0o700); err != nil {
		t.Fatal(err)
	}
	save(t, d, in("before"))
	for range 3 {
		save(t, d, in("now"))
	}
	if _, err := os.Stat(filepath.Join(d.Path(), "000000000002.state")); err != nil {
		t.Errorf("the only file of an earlier journal: got %v, want it kept", err)
	}
}

// Two branches of a journal may have forked off at one sequence. Each has a file of its own,
// and one that is kept already is not written again.
func TestTwoForksAtOneSequence(t *testing.T) {
	d := open(t, t.TempDir())
	var names []string
	for _, objects := range []int{3, 4, 3} {
		p := newPrimary(t, objects)
		for p.store.Position().Seq < 10 {
			p.commit()
		}
		name, err := d.SaveDiverged(t.Context(), p.source())
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
		s, err := statefile.Read(name, "test", metadata.Options{}, codec)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Store.Stats().Objects; int(got) != objects {
			t.Errorf("D: the file has %d objects, want %d", got, objects)
		}
	}
	if names[0] == names[1] || names[0] != names[2] {
		t.Errorf("got the names %q, want one for each state", names)
	}
}
