package mooncakeserver

import (
	"context"
	"sync"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/internal/service"
)

// A call is what a function is served with.
type call struct {
	context.Context
	*session
	master *service.Master
	began  time.Duration // by the front's clock
}

// A function is one that clients may call.
type function struct {
	name   string
	method string // for the observer
	id     uint32
	hash   uint32 // of the arguments' type; 0 if there are none
	read   bool   // waits for nothing but a change under way, which ends with the term at the latest
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
	functions map[uint32]*function
}

// keepBody is up to which size of a request its arguments' room is used again:
// they refer to the request.
const keepBody = 64 << 10

// handle adds a function. serve must set all of the result, whose room is used
// again; an error closes the connection.
func handle[A, R any](t *table, f mooncake.Call[A, R], serve func(c call, args *A, result *R) error) {
	if f.Name == "" {
		return // not in this generation
	}
	type room struct {
		args   A
		result R
	}
	rooms := sync.Pool{New: func() any { return new(room) }}
	fn := newFunction(f.Function)
	fn.serve = func(c call, body string, reply []byte) ([]byte, error) {
		r := rooms.Get().(*room)
		if len(body) <= keepBody {
			defer rooms.Put(r)
		}
		if err := unpack(&c.reader, body, f.Args, &r.args); err != nil {
			return nil, c.mistaken(fn, body, err)
		}
		if err := serve(c, &r.args, &r.result); err != nil {
			return nil, err
		}
		return structpack.Pack(&c.writer, reply, f.Result, &r.result), nil
	}
	t.functions[f.ID] = fn
}

func unpack[A any](r *structpack.Reader, body string, m *structpack.Message[A], args *A) error {
	if m != nil {
		return structpack.Unpack(r, body, m, args)
	}
	if body != "" {
		return structpack.ErrType
	}
	return nil
}

// refuse adds a function that this master does not have: it says so in its
// answer. A batch gets as many answers as it has items.
func refuse(t *table, f mooncake.Function) {
	fn := newFunction(f)
	answer := structpack.NewMessage(refusal(f.Result))
	fn.serve = func(c call, body string, reply []byte) ([]byte, error) {
		items, err := survey(&c.reader, body, f.Args)
		if err != nil {
			return nil, c.mistaken(fn, body, err)
		}
		if err := c.master.Fence(); err != nil {
			return nil, errNotServing
		}
		return structpack.Pack(&c.writer, reply, answer, &items), nil
	}
	t.functions[f.ID] = fn
}

// survey checks arguments and counts the items of a batch.
func survey(r *structpack.Reader, body string, t structpack.Type) (items int, err error) {
	if t != "" {
		return structpack.Survey(r, body, t)
	}
	return 0, unpack[mooncake.None](r, body, nil, nil)
}

// refusal packs NOT_SUPPORTED as a result: once, or for each of so many items.
func refusal(t structpack.Type) structpack.Codec[int] {
	_, batch := t.Vector()
	return structpack.Codec[int]{Type: t, Put: func(w *structpack.Writer, items *int) {
		n := 1
		if batch {
			n = *items
			w.Length(n)
		}
		for range n {
			w.Bool(false)
			w.U32(uint32(errs.NotSupported.Number()))
		}
	}}
}

func newFunction(f mooncake.Function) *function {
	fn := &function{name: f.Name, method: "/mooncake.Mooncake/" + f.Name, id: f.ID}
	if f.Args != "" {
		fn.hash = f.Args.Hash()
	}
	return fn
}
