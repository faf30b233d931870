package judge

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/lab/hostmem"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

const (
	// ownerEvery is how often an owner asks for tasks.
	ownerEvery = 200 * time.Millisecond
	// ownerTasks is how many tasks are fetched at once.
	ownerTasks = 32
	// disks is how many of the hosts have an SSD.
	disks = 2
)

// An owner is the process that lends a host's memory, and perhaps an SSD. Like Mooncake's
// own client, it asks for tasks: to copy and move objects, and to copy them to its SSD and
// back. Readers of the objects check the results. Except for kill, only one goroutine may
// use it.
type owner struct {
	*reader
	*client.Client
	host    *hostmem.Host
	disk    *disk // nil for none
	conn    *mooncakeclient.Conn
	at      string // the address of conn
	end     context.CancelFunc
	running sync.WaitGroup
}

// newOwner starts the process of a host.
func newOwner(l *Load, h *hostmem.Host) (*owner, error) {
	c := l.config.Client
	c.Observer = &watcher{load: l}
	lender, err := client.New(c)
	if err != nil {
		return nil, err
	}
	number := slices.Index(l.hosts.Endpoints(), h.Endpoint)
	o := &owner{reader: newReader(l, Clients+number), Client: lender, host: h}
	if number < disks {
		o.disk = l.disks.open(h.Endpoint)
	}
	var ctx context.Context
	if ctx, o.end = context.WithCancel(l.watch); !l.config.Old {
		o.running.Go(func() { o.work(ctx) })
	}
	return o, nil
}

// kill ends the process. The contents of its SSD are lost.
func (o *owner) kill() {
	o.end()
	o.running.Wait()
	o.Close()
	o.load.disks.lose(o.host.Endpoint)
}

// work asks for tasks, and does them, until the context ends.
func (o *owner) work(ctx context.Context) {
	mounted := o.disk == nil
	for clock.Sleep(ctx, ownerEvery) == nil {
		if !mounted { // the client mounts it again itself if the cluster forgets it
			mounted = o.MountLocalDiskSegment(ctx, true) == nil
		} else if o.disk != nil {
			o.offload(ctx)
			o.promote(ctx)
		}
		o.transfers(ctx)
		o.createTask(ctx)
	}
	o.hangUp()
}

func (o *owner) hangUp() {
	if o.conn != nil {
		_ = o.conn.Close()
		o.conn = nil
	}
}

// ask makes a call of Mooncake's protocol, and repeats it until a primary answers or
// callTimeout has passed.
func ask[V any](ctx context.Context, o *owner, call mooncake.Call[mooncake.Result[V]], a mooncake.Args) (V, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	a.Client = segment.ClientID(o.ID())
	for {
		var r mooncake.Result[V]
		err := o.dial(ctx)
		if err == nil {
			_, err = mooncakeclient.Do(ctx, o.conn, call, &a, &r)
			if err != nil {
				o.hangUp()
			}
		}
		switch kind, _ := errs.FromNumber(r.Failure); {
		case err == nil && r.Failure == 0:
			return r.Value, nil
		case err == nil:
			return r.Value, kind
		case clock.Sleep(ctx, failPause) != nil:
			return r.Value, err
		}
	}
}

// dial connects to the newest primary that clients have found.
func (o *owner) dial(ctx context.Context) error {
	o.load.mu.Lock()
	address := o.load.primary
	o.load.mu.Unlock()
	switch {
	case address == "":
		return errors.New("nobody has answered yet")
	case o.conn != nil && o.at == address:
		return nil
	}
	o.hangUp()
	o.at = address
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var err error
	o.conn, err = mooncakeclient.Dial(ctx, address, o.load.speaks)
	return err
}

// createTask requests a copy or a move of an object that was just read.
func (o *owner) createTask(ctx context.Context) {
	var s sight
	select {
	case s = <-o.load.asked:
	default:
		return
	}
	from := o.load.hosts[s.Replicas[0].Endpoint]
	if from == nil {
		return
	}
	tenant, key := unlabel(s.key)
	to := o.load.hosts[o.load.endpoint(o.rng.IntN(hosts))].Name
	a := mooncake.Args{Key: key, Tenant: tenant, SegmentName: from.Name, Target: to, Targets: []string{to}}
	create := o.load.speaks.CreateMoveTask
	if o.rng.IntN(2) == 0 {
		create = o.load.speaks.CreateCopyTask
	}
	_, _ = ask(ctx, o, create, a)
}

// anyTenant returns the default tenant, or sometimes the other one.
func (r *reader) anyTenant() string {
	if r.rng.IntN(clientsPer) == 0 && r.load.tenants() {
		return Tenant
	}
	return metadata.DefaultTenant
}

// A transfer is the payload of a task to copy or move an object.
type transfer struct {
	Tenant  string `json:"tenant_id"`
	Key     string
	Source  string
	Target  string   // of a move
	Targets []string // of a copy
}

// transfers fetches tasks and does them.
func (o *owner) transfers(ctx context.Context) {
	tasks, _ := ask(ctx, o, o.load.speaks.FetchTasks, mooncake.Args{Most: ownerTasks})
	for _, t := range tasks {
		var what transfer
		if err := json.Unmarshal([]byte(t.Payload), &what); err != nil {
			o.load.seen.add(V, "the task %v has the payload %q: %v", t.ID, t.Payload, err)
			continue
		}
		end := mooncake.TaskEnd{ID: t.ID, Status: int32(metadata.TaskFailed)}
		if o.transfer(ctx, what, t.Kind == mooncake.TaskMove) {
			end.Status = int32(metadata.TaskSucceeded)
		}
		_ = o.done(ctx, o.load.speaks.MarkTaskToComplete, mooncake.Args{TaskEnd: end})
	}
}

// done is ask for a call without a result.
func (o *owner) done(ctx context.Context, call mooncake.Call[mooncake.Done], a mooncake.Args) error {
	_, err := ask(ctx, o, call, a)
	return err
}

// transfer copies or moves an object, and reports whether it succeeded.
func (o *owner) transfer(ctx context.Context, what transfer, move bool) bool {
	began, a := o.load.Now(), mooncake.Args{Key: what.Key, Tenant: what.Tenant, SegmentName: what.Source, Target: what.Target, Targets: what.Targets}
	end, revoke := o.load.speaks.CopyEnd, o.load.speaks.CopyRevoke
	var plan mooncake.CopyPlan
	var err error
	if move {
		end, revoke = o.load.speaks.MoveEnd, o.load.speaks.MoveRevoke
		var one mooncake.MovePlan
		one, err = ask(ctx, o, o.load.speaks.MoveStart, a)
		if plan.Source = one.Source; one.Target != nil {
			plan.Targets = []mooncake.Located{*one.Target}
		}
	} else {
		plan, err = ask(ctx, o, o.load.speaks.CopyStart, a)
	}
	if err != nil {
		_ = o.done(ctx, revoke, a) // the start may have worked although its answer was lost
		return false
	}
	id := client.ObjectID(plan.Source.ID)
	wrong := o.wrong(client.Replica{Endpoint: plan.Source.Endpoint, Address: plan.Source.Address}, uint64(id), label(what.Tenant, what.Key))
	if !o.load.ring.has(what.Key) {
		wrong = "" // nobody wrote its bytes
	}
	if wrong != "" || o.rng.IntN(revokeEvery) == 0 || o.load.lostSince(began) {
		if o.done(ctx, revoke, a) == nil && wrong != "" {
			o.load.seen.add(A, "%v: the source of a transfer, %s", seconds(o.load.Now()), wrong)
		}
		return false
	}
	for _, to := range plan.Targets {
		o.fill(to.Descriptor, o.found)
	}
	if !move {
		if err = o.done(ctx, end, a); err == nil {
			o.load.did.copies.Add(1)
		}
		return err == nil
	}
	o.load.movedTo(id, "") // unknown until there is an answer
	if err = o.done(ctx, end, a); err == nil {
		o.load.did.moves.Add(1)
		o.load.movedTo(id, o.load.hosts.Endpoint(what.Target))
	}
	return err == nil
}

func (o *owner) fill(at metadata.Descriptor, block []byte) {
	if err := o.load.hosts.Write(at.Endpoint, at.Address, block); err != nil {
		o.load.seen.add(A, "%v: a target of a transfer: %v", seconds(o.load.Now()), err)
	}
}

func (l *Load) movedTo(id client.ObjectID, endpoint string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moved[id] = endpoint
}

type ownerCounts struct{ copies, moves, offloads, diskReads, diskEvictions, promotions atomic.Int64 }

// OwnerCounts returns how many tasks of each kind owners have done.
func (l *Load) OwnerCounts() map[string]int64 {
	return map[string]int64{
		"copies": l.did.copies.Load(), "moves": l.did.moves.Load(), "offloads": l.did.offloads.Load(),
		"disk_reads": l.did.diskReads.Load(), "disk_evictions": l.did.diskEvictions.Load(), "promotions": l.did.promotions.Load(),
	}
}
