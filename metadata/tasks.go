package metadata

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/zeebo/xxh3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata/binenc"
	"github.com/understudy-store/understudy/segment"
)

// Limits of tasks, as the C++ master has them by default.
const (
	maxTasks       = 10_000          // of each: those that wait, are at work, and are remembered
	TaskTimeout    = 5 * time.Minute // how long one may wait, and may be at work
	maxTaskNames   = 16 << 10        // bytes of the names of a task's targets
	maxTaskMessage = 1 << 10         // bytes
	maxTasksAtOnce = 1000            // of one change
	maxTaskBytes   = 64 << 20        // of the keys and names of all that have not ended
	maxFetchBytes  = 1 << 20         // of the keys and names of tasks fetched together, if several
)

// A TaskID names a task.
type TaskID uuid.UUID

// MarshalText returns the canonical form.
func (id TaskID) MarshalText() ([]byte, error) { return []byte(uuid.UUID(id).String()), nil }

// TaskStatus is how far a task is, with the C++ master's numbers.
type TaskStatus uint8

// The states of a task.
const (
	TaskPending TaskStatus = iota
	TaskProcessing
	TaskFailed
	TaskSucceeded
)

func (s TaskStatus) String() string {
	return nameOf(s+1, "PENDING", "PROCESSING", "FAILED", "SUCCEEDED")
}

// Ended reports whether nothing is left to do.
func (s TaskStatus) Ended() bool { return s >= TaskFailed }

// A Task asks a client to copy or to move an object. It is part of the state; who
// executes it begins a Transfer.
type Task struct {
	ID      TaskID
	Client  segment.ClientID // who executes it
	Move    bool
	Tenant  string
	Key     string   // of the object; empty when the task has ended, as are Source and Targets
	Source  string   // name of a segment
	Targets []string // names of segments; one for a move
	Size    uint64   // of the object, in bytes, for drain jobs; else 0
	Status  TaskStatus
	Message string // how it ended
	Created Time
	Updated Time // when its status changed last

	number uint64 // in the order in which tasks came
}

func (t *Task) code(c *binenc.Coder) {
	c.CodeFixed(t.ID[:])
	c.CodeFixed(t.Client[:])
	c.CodeBool(&t.Move)
	codeTenant(c, &t.Tenant)
	c.CodeString(&t.Key, MaxKeyBytes)
	c.CodeString(&t.Source, MaxNameBytes)
	binenc.CodeSlice(c, &t.Targets, 1, func(name *string) { c.CodeString(name, MaxNameBytes) })
	binenc.CodeUvarint(c, &t.Size)
}

func (t *Task) codeRest(c *binenc.Coder) {
	codeTaskStatus(c, &t.Status)
	c.CodeString(&t.Message, maxTaskMessage)
	binenc.CodeVarint(c, &t.Created)
	binenc.CodeVarint(c, &t.Updated)
	binenc.CodeUvarint(c, &t.number)
}

func codeTaskStatus(c *binenc.Coder, s *TaskStatus) {
	b := byte(*s)
	if c.CodeByte(&b); b > byte(TaskSucceeded) {
		c.Fail("task status %d", b)
	}
	*s = TaskStatus(b)
}

// digestTerm hashes a task's encoding.
func (t *Task) digestTerm() Digest {
	c := binenc.Encoder(nil)
	t.code(&c)
	t.codeRest(&c)
	return finish(mix(seedTask, xxh3.Hash(c.Encoded())))
}

// tasks are those of the state. Guarded by Store.applyMu.
type tasks struct {
	byID  map[TaskID]*Task
	open  []*Task // that have not ended, in the order in which they came
	ended []*Task // in the order in which they ended
	bytes int     // of keys and names
	last  uint64
	// waiting counts the pending tasks of each client, as each asks for its own once a
	// second; pending is the sum.
	waiting map[segment.ClientID]int
	pending int
}

// count adds n to the number of pending tasks if the task is one.
func (t *tasks) count(task *Task, n int) {
	if task.Status != TaskPending {
		return
	}
	t.pending += n
	if t.waiting[task.Client] += n; t.waiting[task.Client] == 0 {
		delete(t.waiting, task.Client)
	}
}

// AddTask creates a task.
type AddTask struct {
	objectEvent

	Task
}

// Apply adds the task, at the end of its client's queue.
func (e *AddTask) Apply(tx *Tx) error {
	s := tx.s
	if tx.globalHas() || s.tasks.byID[e.ID] != nil {
		return nil
	}
	t := e.Task
	s.tasks.last++
	t.number, t.Created, t.Updated = s.tasks.last, tx.now, tx.now
	s.fileTask(&t)
	return nil
}

// Code encodes or decodes the fields.
func (e *AddTask) Code(c *binenc.Coder) {
	c.Tag(typeAddTask)
	e.code(c)
}

func (s *Store) fileTask(t *Task) {
	s.tasks.byID[t.ID] = t
	s.tasks.count(t, 1)
	if t.Status.Ended() {
		s.tasks.ended = append(s.tasks.ended, t)
	} else {
		s.tasks.open = append(s.tasks.open, t)
		s.tasks.bytes += t.bytes()
	}
	s.digest += t.digestTerm()
}

func (t *Task) bytes() int {
	n := len(t.Key) + len(t.Source)
	for _, name := range t.Targets {
		n += len(name)
	}
	return n
}

// SetTasks says that tasks are at work, or have ended.
type SetTasks struct {
	objectEvent

	IDs     []TaskID
	Status  TaskStatus
	Message string
}

// Apply changes the tasks that have not ended. Of those that have, it keeps the newest.
func (e *SetTasks) Apply(tx *Tx) error {
	s := tx.s
	if tx.globalHas() {
		return nil
	}
	for _, id := range e.IDs {
		t := s.tasks.byID[id]
		if t == nil || t.Status.Ended() {
			continue
		}
		if e.Status.Ended() {
			s.countMove(t, e.Status)
		}
		s.digest -= t.digestTerm()
		s.tasks.count(t, -1)
		t.Status, t.Message, t.Updated = e.Status, e.Message, tx.now
		s.tasks.count(t, 1)
		if t.Status.Ended() {
			s.tasks.bytes -= t.bytes()
			t.Tenant, t.Key, t.Source, t.Targets = DefaultTenant, "", "", nil
			s.tasks.ended = append(s.tasks.ended, t)
		}
		s.digest += t.digestTerm()
	}
	s.tasks.open = slices.DeleteFunc(s.tasks.open, func(t *Task) bool { return t.Status.Ended() })
	for len(s.tasks.ended) > maxTasks {
		oldest := s.tasks.ended[0]
		s.digest -= oldest.digestTerm()
		delete(s.tasks.byID, oldest.ID)
		s.tasks.ended = s.tasks.ended[1:]
	}
	return nil
}

// Code encodes or decodes the fields.
func (e *SetTasks) Code(c *binenc.Coder) {
	c.Tag(typeSetTasks)
	binenc.CodeSlice(c, &e.IDs, 16, func(id *TaskID) { c.CodeFixed(id[:]) })
	codeTaskStatus(c, &e.Status)
	c.CodeString(&e.Message, maxTaskMessage)
}

// codeTasks codes the tasks of the state, in the last part of a snapshot.
func (s *Store) codeTasks(c *binenc.Coder) {
	list := slices.Concat(s.tasks.ended, s.tasks.open)
	binenc.CodeUvarint(c, &s.tasks.last)
	binenc.CodeSlice(c, &list, 40, func(t **Task) {
		if c.Decoding() {
			*t = new(Task)
		}
		(*t).code(c)
		if (*t).codeRest(c); c.Decoding() && c.Err() == nil {
			s.fileTask(*t)
		}
	})
}

// PrepareTask decides the creation of a task. Decide tasks one at a time, each after
// those before it were applied, but for those ahead, which are in front of it in the same
// commit. The same holds for PrepareFetch. Errors: TaskLimit if more than maxTasks would
// wait, or the keys and names of all that have not ended would exceed maxTaskBytes;
// InvalidParams for names that are too long, Unavailable while a node of the cluster does
// not know tasks.
func (s *Store) PrepareTask(op string, t Task, ahead ...Task) (*AddTask, error) {
	names, bytes := t.bytes()-len(t.Key), t.bytes()
	for i := range ahead {
		bytes += ahead[i].bytes()
	}
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	switch {
	case s.Rules() < transferRules:
		return nil, errs.New(errs.Unavailable, op, "nodes of an older version do not know tasks; upgrade them")
	case names > maxTaskNames:
		return nil, errs.New(errs.InvalidParams, op, "the names of the segments have %d bytes, at most %d are possible", names, maxTaskNames)
	case s.tasks.pending+len(ahead) >= maxTasks, s.tasks.bytes+bytes > maxTaskBytes:
		return nil, errs.TaskLimit
	}
	t.Status = TaskPending
	return &AddTask{Task: t}, nil
}

// PrepareFetch returns the oldest pending tasks of a client, at most so many and no more
// than fit a message, and the change that marks them as at work; nil if there are none.
func (s *Store) PrepareFetch(client segment.ClientID, most uint64) (fetched []Task, e *SetTasks) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	if s.tasks.waiting[client] == 0 {
		return nil, nil
	}
	most = min(most, maxTasksAtOnce, uint64(max(0, maxTasks-(len(s.tasks.open)-s.tasks.pending))))
	e = &SetTasks{Status: TaskProcessing}
	bytes := 0
	for _, t := range s.tasks.open {
		if t.Status != TaskPending || t.Client != client {
			continue
		}
		bytes += t.bytes()
		if uint64(len(fetched)) == most || bytes > maxFetchBytes && len(fetched) > 0 {
			break
		}
		fetched, e.IDs = append(fetched, *t), append(e.IDs, t.ID)
	}
	if len(fetched) == 0 {
		return nil, nil
	}
	return fetched, e
}

// FindTask returns a task, false if there is none.
func (s *Store) FindTask(id TaskID) (Task, bool) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	t := s.tasks.byID[id]
	if t == nil {
		return Task{}, false
	}
	return *t, true
}

// OverdueTasks returns the changes that fail tasks which have waited, or have been at
// work, for longer than TaskTimeout.
func (s *Store) OverdueTasks(now Time) (changes []*SetTasks) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	waited := &SetTasks{Status: TaskFailed, Message: "pending timeout"}
	worked := &SetTasks{Status: TaskFailed, Message: "processing timeout"}
	for _, t := range s.tasks.open {
		e := waited
		if t.Status == TaskProcessing {
			e = worked
		}
		if now.Sub(t.Updated) > TaskTimeout && len(e.IDs) < maxTasksAtOnce {
			e.IDs = append(e.IDs, t.ID)
		}
	}
	return slices.DeleteFunc([]*SetTasks{waited, worked}, func(e *SetTasks) bool { return len(e.IDs) == 0 })
}

// A Holder is a segment that an object is readable on.
type Holder struct {
	Name   string
	Client segment.ClientID // the segment's owner
}

// Holders returns the segments that an object is readable on, by name. It fails with
// ObjectNotFound without an object.
func (s *Store) Holders(tenant, key string) ([]Holder, error) {
	sh := &s.shards[shardOf(tenant, key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o := s.lookup(sh, tenant, key)
	if o.none() {
		return nil, errs.ObjectNotFound
	}
	var list []Holder
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.kind == Memory && r.readable() {
			list = append(list, Holder{r.segment.Name, r.segment.Client})
		}
	}
	slices.SortFunc(list, func(a, b Holder) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}
