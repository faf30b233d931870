package mooncakeserver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal/nowait"
	"github.com/understudy-store/understudy/metadata"
)

// A call is what a function is served with.
type call struct {
	context.Context
	*session
	master *service.Master
	tenant string // whose keys it is about
	// refused is why the call may not name the tenant that it names.
	refused error
}

// A function is one that clients may call.
type function struct {
	name   string
	method string // for the observer
	id     uint32
	hash   uint32 // of the arguments' type; 0 if there are none
	read   bool   // waits for nothing but pending changes
	many   bool   // waits for pending changes of many keys, one after the other; each ends with the term at the latest
	single bool   // changes one object, in one commit
	order  bool   // is logged, with who gave it
	sweeps bool   // removes many objects at once
	writes bool   // takes memory, for a tenant that it must name
	serve  func(c call, body string, reply []byte) ([]byte, error)
}

// takes reports whether a message has the type of the function's arguments.
func (f *function) takes(message string) bool {
	if len(message) < 4 {
		return f.hash == 0 && message == ""
	}
	got := uint32(message[0]) | uint32(message[1])<<8 | uint32(message[2])<<16 | uint32(message[3])<<24
	return got&^1 == f.hash
}

// A table has the functions of one generation.
type table struct {
	name      string
	tenants   bool // calls may name a tenant
	functions map[uint32]*function
}

// keepBody is the size of a request, and of its answer, up to which the memory of arguments and
// result is used again: the arguments refer to the request, and the result is about as large as
// the answer.
const keepBody = 64 << 10

// handle adds a function. serve must set all of the result, whose room is used
// again; an error closes the connection.
func handle[R any](t *table, f mooncake.Call[R], serve func(c call, a *args, result *R) error) {
	if f.Name == "" {
		return // not in this generation
	}
	type room struct {
		args   args
		result R
	}
	rooms := sync.Pool{New: func() any { return new(room) }}
	fn := newFunction(f.Function)
	fn.serve = func(c call, body string, reply []byte) ([]byte, error) {
		r := rooms.Get().(*room)
		if err := unpack(&c.reader, body, f.Args, &r.args); err != nil {
			return nil, c.mistaken(fn, body, err)
		}
		if fn.order {
			c.order = newOrder(&r.args)
		}
		c.tenant, c.refused = c.tenantOf(fn, r.args.Tenant)
		if err := serve(c, &r.args, &r.result); err != nil {
			return nil, err
		}
		answered := structpack.Pack(&c.writer, reply, f.Result, &r.result)
		if len(body) <= keepBody && len(answered)-len(reply) <= keepBody { // of an error the result is not known
			rooms.Put(r)
		}
		return answered, nil
	}
	t.functions[f.ID] = fn
}

// tenantOf returns the tenant whose keys a call is about, and an error if the call
// must not name it: one that takes memory has to name a tenant (C++ master).
func (c call) tenantOf(f *function, named string) (string, error) {
	if !c.master.Tenants || named == metadata.DefaultTenant {
		return metadata.DefaultTenant, nil
	}
	err := service.CheckTenant(f.name, named)
	if f.writes && (err != nil || named == "") {
		err = errs.TenantNotRegistered
	}
	if named == "" {
		return metadata.DefaultTenant, err
	}
	return strings.Clone(named), err // it lies in the request
}

// one adds a function with one result, which makes a single change or none. So
// NotLeader means that nothing was changed.
func one[V any](t *table, f mooncake.Call[mooncake.Result[V]], serve func(c call, a *args) (V, error)) {
	handle(t, f, func(c call, a *args, r *mooncake.Result[V]) (err error) {
		if err = c.refused; err == nil {
			r.Value, err = serve(c, a)
		}
		return c.settle(&r.Failure, f.Name, err)
	})
}

// steps adds a function that makes several changes, one after the other, and has
// one result for all. NotLeader may come after some of them, so the fence is
// checked before the first.
func steps[V any](t *table, f mooncake.Call[mooncake.Result[V]], serve func(c call, a *args) (V, error)) {
	handle(t, f, func(c call, a *args, r *mooncake.Result[V]) (err error) {
		if c.master.Fence(c) != nil {
			return errNotServing
		}
		r.Value, err = serve(c, a)
		if errors.Is(err, errs.NotLeader) || c.settle(&r.Failure, f.Name, err) != nil {
			return errHalfway
		}
		return nil
	})
}

// each adds a batch, which has a result for each item: one error for all, or each
// its own. If the term ended after some of the items, the others have no answer,
// and so the batch has none.
func each[V any](t *table, f mooncake.Call[[]mooncake.Result[V]], serve func(c call, a *args) (values []V, failed []error, err error)) {
	handle(t, f, func(c call, a *args, results *[]mooncake.Result[V]) error {
		values, failed, err := []V(nil), []error(nil), c.refused
		if err == nil {
			values, failed, err = serve(c, a)
		}
		n := len(a.Keys) + len(a.Items) // a call has one of the two
		*results = slices.Grow((*results)[:0], n)[:n]
		turnedAway := 0
		for i := range *results {
			r, e := &(*results)[i], err
			if i < len(values) {
				r.Value = values[i]
			}
			if e == nil && failed != nil {
				e = failed[i]
			}
			switch settled := c.settle(&r.Failure, f.Name, e); {
			case errors.Is(settled, nowait.Err):
				return settled
			case settled != nil:
				turnedAway++
			}
		}
		switch {
		case errs.KindOf(err) == errs.NotLeader, turnedAway == n && n > 0:
			return errNotServing
		case turnedAway > 0:
			return errHalfway
		}
		return nil
	})
}

// done and eachDone are for functions that return nothing.
func done(serve func(c call, a *args) error) func(c call, a *args) (struct{}, error) {
	return func(c call, a *args) (struct{}, error) { return struct{}{}, serve(c, a) }
}

func eachDone(serve func(c call, a *args) ([]error, error)) func(c call, a *args) ([]struct{}, []error, error) {
	return func(c call, a *args) ([]struct{}, []error, error) {
		failed, err := serve(c, a)
		return nil, failed, err
	}
}

// settle makes an error the outcome of a call, or of an item of a batch. It
// returns errNotServing instead if this node is not the primary any more.
func (c call) settle(failure *int32, name string, err error) error {
	*failure = 0
	if err == nil {
		return nil
	}
	if errors.Is(err, nowait.Err) {
		return err
	}
	kind := errs.KindOf(err)
	if kind == errs.NotLeader {
		return errNotServing
	}
	if kind == errs.Internal {
		c.front.Log.Error().Str("function", name).Err(err).Msg("a call failed with an internal error")
	}
	c.order.result, *failure = kind, kind.Number()
	return nil
}

func unpack(r *structpack.Reader, body string, m *structpack.Message[args], a *args) error {
	if m != nil {
		return structpack.Unpack(r, body, m, a)
	}
	if body != "" {
		return structpack.ErrType
	}
	return nil
}

// other adds a function whose answer is always the same.
func other(t *table, f mooncake.Other) {
	fn := newFunction(f.Function)
	answer := structpack.NewMessage(structpack.Codec[errs.Kind]{Type: f.Result, Put: func(w *structpack.Writer, failure *errs.Kind) {
		if w.Bool(*failure == errs.OK); *failure == errs.OK {
			w.Length(0)
		} else {
			w.U32(uint32(failure.Number()))
		}
	}})
	fn.serve = func(c call, body string, reply []byte) ([]byte, error) {
		if err := survey(&c.reader, body, f.Args); err != nil {
			return nil, c.mistaken(fn, body, err)
		}
		if err := c.master.Fence(c); err != nil {
			return nil, errNotServing
		}
		return structpack.Pack(&c.writer, reply, answer, &f.Failure), nil
	}
	t.functions[f.ID] = fn
}

func survey(r *structpack.Reader, body string, t structpack.Type) error {
	if t != "" {
		return structpack.Survey(r, body, t)
	}
	return unpack(r, body, nil, nil)
}

func newFunction(f mooncake.Function) *function {
	fn := &function{name: f.Name, method: "/mooncake.Mooncake/" + f.Name, id: f.ID}
	if f.Args != "" {
		fn.hash = f.Args.Hash()
	}
	return fn
}
