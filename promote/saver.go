package promote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote/follower"
	"github.com/understudy-store/understudy/promote/statefile"
)

// A saver keeps this node's state on its own disk, so that after a restart the node can
// go on from there and the journal. A failure is only a warning: the node serves on. The
// disk may hang (see beside). A restart waits for it; a new journal waits for up to
// firstSave, a state that must be kept until it is written, and a node that stops for up
// to lastSaveTimeout. No commit waits, and no election but that for a new journal.
type saver struct {
	node   *Node
	dir    *statefile.Dir // nil for none; set by open alone, under mu
	files  chan struct{}  // has an element while a state file is written or read
	notes  chan struct{}  // has an element while what the node remembers is written
	memory chan []byte    // what is to be remembered next
	trail  trail          // for follows alone

	mu       sync.Mutex      // guards all below
	kept     []byte          // what is remembered
	store    *metadata.Store // of the newest file
	at       journal.Cursor  // where the newest file leads
	since    time.Duration   // by the clock: when it was written, or loaded
	pause    time.Duration   // by the clock: no save before this time
	there    bool            // there is a file
	unread   error           // why the newest of the files that stand in the directory was not loaded
	followed bool            // the journal goes on from it, as far as is known
	fault    error           // why the last attempt failed
	saves    int64
	took     time.Duration // by the newest save
	failures int64
	needs    journal.Cursor // from where a file that is being written needs the journal; zero for none

	neighbours []statefile.Neighbour // as they stood when this node started
}

const (
	// saveLook is how often a node looks whether its state is to be saved.
	saveLook = time.Second
	// idleSaves is how many intervals pass before a state is saved in which only the
	// time has changed.
	idleSaves = 10
	// savePause is the pause after a save that failed.
	savePause = 10 * time.Second
	// saveTimeout is how long a save may write nothing before it fails.
	saveTimeout = time.Minute
	// firstSave is how long a node waits for a file before it serves in a journal that no
	// earlier file leads to.
	firstSave = time.Second
	// lastSaveTimeout bounds the save of a node that stops.
	lastSaveTimeout = 10 * time.Second
	// savedShare divides MaxJournalBytes: after that many bytes of journal the next file is due.
	savedShare = 4
)

func newSaver(n *Node) *saver {
	return &saver{node: n, files: make(chan struct{}, 1), notes: make(chan struct{}, 1), memory: make(chan []byte, 1)}
}

// beside calls touch, which uses the disk, in a goroutine of its own, one at a time for
// each busy. It returns when touch has ended, or earlier with the context's error.
func beside(ctx context.Context, busy chan struct{}, touch func() error) error {
	select {
	case busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	done := make(chan error, 1)
	go func() {
		err := touch()
		<-busy
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// recall reads what this node remembers of its cluster.
func (s *saver) recall() {
	kept, err := s.dir.Memory()
	if err = errors.Join(err, s.node.companions.recall(s.node.ClusterID, kept)); err != nil {
		s.node.Log.Warn().Err(err).Str("dir", s.node.StateDir).
			Msg("what this node remembers of its cluster cannot be read: after a loss of etcd it does not know which other nodes hold the state")
	}
	s.kept = kept
}

// open locks the directory and returns the state of the newest file, nil for none, with
// the file's name.
func (s *saver) open() (store *metadata.Store, at journal.Cursor, file string) {
	n := s.node
	if n.StateDir == "" {
		return nil, journal.Cursor{}, ""
	}
	begun := n.Clock()
	var loaded *statefile.State
	var passed error
	dir, err := statefile.Open(n.StateDir)
	if err == nil {
		if n.OwnsEtcd || n.EtcdMember {
			dir.Spare = statefile.SpareBytes
		}
		s.mu.Lock()
		s.dir = dir
		s.mu.Unlock()
		s.recall()
		loaded, passed, err = s.load()
	}
	if err != nil {
		s.fail(err)
	}
	if loaded == nil || loaded.At.Head.Seq == 0 {
		s.look()
	}
	if loaded == nil {
		s.missed(cmp.Or(err, passed))
		return nil, journal.Cursor{}, ""
	}
	n.Log.Info().Str("file", loaded.File).Uint64("sequence", uint64(loaded.At.Head.Seq)).
		Int64("objects", loaded.Store.Stats().Objects).Dur("took", n.Clock()-begun).Msg("loaded a state file")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store, s.at, s.since, s.there, s.unread = loaded.Store, loaded.At, n.Clock(), true, passed
	return loaded.Store, loaded.At, loaded.File
}

// load returns the state of the newest file that is whole, nil for none, and why the
// newest of all was passed over, if it was.
func (s *saver) load() (loaded *statefile.State, passed, err error) {
	n := s.node
	loaded, err = s.dir.Load(n.ClusterID, n.Options, n.Codec, func(file string, err error) {
		n.Log.Warn().Err(err).Str("file", file).Msg("a state file cannot be loaded; the one before it is tried")
		passed = cmp.Or(passed, fmt.Errorf("%s: %w", file, err))
	})
	return loaded, passed, err
}

// missed notes that nothing was loaded although there may be state files.
func (s *saver) missed(why error) {
	files, err := statefile.Count(s.node.StateDir)
	if err == nil && files == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unread = cmp.Or(why, err)
}

// remember has write keep what this node knows of the cluster. It must be called by one
// goroutine at a time.
func (s *saver) remember(memory []byte) {
	select {
	case <-s.memory: // outdated
	default:
	}
	s.mu.Lock()
	same := bytes.Equal(memory, s.kept)
	s.mu.Unlock()
	if !same {
		s.memory <- memory
	}
}

// write writes what is to be remembered, until the context ends.
func (s *saver) write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case memory := <-s.memory:
			err := beside(ctx, s.notes, func() error { return s.dir.Remember(memory) })
			if err == nil {
				s.mu.Lock()
				s.kept = memory
				s.mu.Unlock()
			} else if ctx.Err() == nil {
				s.fail(err)
			}
		}
	}
}

// newest returns the state of the newest file, nil if there is none.
func (s *saver) newest(ctx context.Context) (*statefile.State, error) {
	if s.dir == nil {
		return nil, nil
	}
	var loaded *statefile.State
	err := beside(ctx, s.files, func() (err error) {
		loaded, _, err = s.load()
		return err
	})
	if err != nil {
		return nil, err
	}
	return loaded, nil
}

// keepDiverged writes a state with commits that the journal does not have to a file of its
// own, which no program deletes. Without a state directory these commits are lost.
func (s *saver) keepDiverged(ctx context.Context, store *metadata.Store, at journal.Cursor, fork metadata.Seq) error {
	n := s.node
	more := uint64(max(at.Head.Seq, fork) - fork) // 0 if the state ends before the fork
	if s.dir == nil {
		n.Log.Error().Uint64("fork", uint64(fork)).Uint64("commits", more).
			Msg("this node has commits that the journal may not have; without a state directory they are lost")
		return nil
	}
	var file string
	err := s.inTime(ctx, n.sourceAt(store, at), func(ctx context.Context, of statefile.Source) (err error) {
		file, err = s.dir.SaveDiverged(ctx, of)
		return err
	})
	if err != nil {
		return err
	}
	n.Log.Error().Str("file", file).Uint64("fork", uint64(fork)).Uint64("commits", more).
		Msg("this node has commits that the journal may not have; they are kept in a file that only you delete")
	return nil
}

// inTime writes a file and notes a failure; it is one to write nothing for saveTimeout.
// Meanwhile the journal is kept from the position of the state.
func (s *saver) inTime(parent context.Context, state *statefile.Source, write func(context.Context, statefile.Source) error) error {
	s.need(state.At())
	defer s.need(journal.Cursor{})
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	idle := time.AfterFunc(saveTimeout, cancel)
	defer idle.Stop()
	of := *state
	of.Wrote = func() { idle.Reset(saveTimeout) }
	err := beside(ctx, s.files, func() error { return write(ctx, of) })
	if err == nil || parent.Err() != nil {
		return err
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("nothing was written for %v, so the disk may hang: %w", saveTimeout, err)
	}
	s.fail(err)
	return err
}

// need sets the position from which the journal is to be kept for a file that is being
// written; zero ends that.
func (s *saver) need(at journal.Cursor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.needs = at
}

// run saves the state whenever that is due, until the context ends.
func (s *saver) run(ctx context.Context) {
	if s.dir == nil {
		return
	}
	writing := start(func() error { s.write(ctx); return nil })
	defer func() { <-writing.ended }()
	for clock.Sleep(ctx, saveLook) == nil {
		if of := s.node.source(); of != nil && s.due(ctx, of) {
			s.save(ctx, of)
		}
	}
}

// due reports whether a state is to be saved now.
func (s *saver) due(ctx context.Context, of *statefile.Source) bool {
	at := of.At()
	s.mu.Lock()
	rests, old := s.node.Clock() < s.pause || s.overUnread(at), s.isOld(of.Store, at)
	s.mu.Unlock()
	if old && !rests {
		return true
	}
	leads := s.follows(ctx, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	return !rests && !leads && s.at != at // a journal that is lost does not go on from a newer file either
}

// isOld reports whether a newer file than the newest is due for a state. Needs mu.
func (s *saver) isOld(store *metadata.Store, at journal.Cursor) bool {
	n, age := s.node, s.node.Clock()-s.since
	return !s.there || s.store != store || s.at.Head.History != at.Head.History ||
		journal.HistoryBytes(s.at, at) >= n.MaxJournalBytes/savedShare ||
		age >= n.StateSaveInterval && at.Head.Bytes != s.at.Head.Bytes || age >= idleSaves*n.StateSaveInterval
}

// overUnread reports whether a state with nothing in it would become the newest file,
// before files that could not be read. Needs mu.
func (s *saver) overUnread(at journal.Cursor) bool { return s.unread != nil && at.Head.Seq == 0 }

// save writes a file. Errors are logged, and shown by status.
func (s *saver) save(ctx context.Context, of *statefile.Source) {
	if s.dir == nil {
		return
	}
	n := s.node
	begun := n.Clock()
	var at journal.Cursor
	err := s.inTime(ctx, of, func(ctx context.Context, of statefile.Source) (err error) {
		at, err = s.dir.Save(ctx, of)
		return err
	})
	if err != nil {
		return
	}
	s.mu.Lock()
	s.store, s.at, s.since, s.pause = of.Store, at, n.Clock(), 0
	s.there, s.followed, s.fault, s.unread = true, true, nil, nil
	s.saves++
	s.took = s.since - begun
	s.mu.Unlock()
	n.Log.Debug().Uint64("sequence", uint64(at.Head.Seq)).Dur("took", n.Clock()-begun).Msg("saved the state")
	s.publish(ctx, at)
}

// position returns where the newest file leads, zero if there is none.
func (s *saver) position() journal.Cursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.there {
		return journal.Cursor{}
	}
	return s.at
}

// leadsTo reports whether the newest file is of a store, and leads to a position in a history.
func (s *saver) leadsTo(store *metadata.Store, in journal.History, at metadata.Seq) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.there && s.store == store && s.at.Head.History == in && s.at.Head.Seq == at
}

// rested reports whether the pause after the last save that failed is over.
func (s *saver) rested() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node.Clock() >= s.pause
}

func (s *saver) fail(err error) {
	n := s.node
	s.mu.Lock()
	known := s.fault != nil && s.fault.Error() == err.Error()
	s.fault, s.pause = err, n.Clock()+savePause
	s.failures++
	s.mu.Unlock()
	if !known {
		n.Log.Warn().Err(err).Str("dir", n.StateDir).Msg("the state cannot be saved; see that --state-dir can be written and has space")
	}
}

// A place is a position in the journal that a node publishes: of its newest file, for example.
type place struct {
	Seq      metadata.Seq `json:"sequence"`
	Revision int64        `json:"revision"`
	Bytes    int64        `json:"bytes,omitempty"` // of the head there; 0 if not known
}

func placeOf(at journal.Cursor) place { return place{at.Head.Seq, at.Revision, at.Head.Bytes} }

// publish says in etcd where the newest file leads, so that the journal is kept from
// there. If that fails, more of it is kept.
func (s *saver) publish(ctx context.Context, at journal.Cursor) {
	n := s.node
	value, err := json.Marshal(placeOf(at))
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	if _, err := n.Client.Put(ctx, n.Layout.SavedBy(n.ID), string(value)); err != nil {
		n.Log.Debug().Err(err).Msg("the position of the state file was not published")
	}
}

// close saves the state that a node stops with, nil for none, and unlocks the
// directory, unless its disk hangs.
func (s *saver) close(ctx context.Context, store *metadata.Store, at journal.Cursor) {
	if s.dir == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSaveTimeout)
	defer cancel()
	s.mu.Lock()
	needless := s.there && s.at == at || s.overUnread(at)
	s.mu.Unlock()
	if store != nil && !needless {
		s.save(ctx, s.node.sourceAt(store, at))
	}
	for _, busy := range []chan struct{}{s.files, s.notes} {
		if beside(ctx, busy, func() error { return nil }) != nil {
			s.node.Log.Warn().Str("dir", s.node.StateDir).Msg("this node stops while its state directory is written to: the disk may hang")
			return
		}
	}
	_ = s.dir.Close()
}

// A Saving says how it stands with this node's state files.
type Saving struct {
	Seq        metadata.Seq // to which the newest file leads
	Restorable bool         // the journal goes on from there
	Dir        string       // empty for none
	Instance   string       // of the directory; empty if it cannot be used
	Age        time.Duration
	Saves      int64
	Took       time.Duration // by the newest save
	Failures   int64
	Needs      journal.Cursor // from where a file that is being written needs the journal; zero for none
	Fault      error          // of the last attempt
	Unread     error          // why the newest of the files that stand in Dir was not loaded; nil if it was
}

func (s *saver) status() Saving {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Saving{Dir: s.node.StateDir, Saves: s.saves, Took: s.took, Failures: s.failures, Needs: s.needs, Fault: s.fault, Unread: s.unread}
	if s.dir != nil {
		st.Instance = s.dir.Instance()
	}
	if s.there {
		st.Age = s.node.Clock() - s.since
		st.Seq, st.Restorable = s.at.Head.Seq, s.followed
	}
	return st
}

var errNotComplete = errors.New("the state does not follow the journal any more")

// source is the state to be saved; nil while there is none that is complete.
func (n *Node) source() *statefile.Source {
	n.mu.Lock()
	t, f, role := n.term, n.follower, n.role
	n.mu.Unlock()
	switch {
	case t != nil && role == Primary:
		return t.source()
	case t == nil && f != nil:
		return n.following(f)
	}
	return nil
}

// following is a follower's state, nil while it is not complete.
func (n *Node) following(f *follower.Follower) *statefile.Source {
	store, at := f.State()
	if store == nil || !f.Complete() {
		return nil
	}
	of := n.sourceAt(store, at)
	of.At = func() journal.Cursor { _, at := f.State(); return at }
	of.Valid = func() error {
		if now, _ := f.State(); now != store || !f.Complete() {
			return errNotComplete
		}
		return nil
	}
	return of
}

// source is the term's state, once it has begun.
func (t *Term) source() *statefile.Source {
	of := t.node.sourceAt(t.Store, journal.Cursor{})
	of.At = t.log.Tip
	return of
}

// sourceAt is a state that stands at a position.
func (n *Node) sourceAt(store *metadata.Store, at journal.Cursor) *statefile.Source {
	return &statefile.Source{
		ClusterID: n.ClusterID, NodeID: n.ID, Store: store, Read: n.reader().Read, Ancestors: n.companions.known().Ancestors,
		At: func() journal.Cursor { return at }, Valid: func() error { return nil },
	}
}

func (n *Node) reader() *journal.Reader {
	return &journal.Reader{Client: n.Client, Layout: n.Layout, Codec: n.Codec}
}
