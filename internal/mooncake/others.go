package mooncake

import (
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
)

// An Other is a function whose answer is always the same.
type Other struct {
	Function
	Failure errs.Kind // OK for an empty list
}

// others are the functions of NVMe-oF pools, of which there are none here. Their
// literals are all that a master needs of them.
func (b *builder) others() {
	const text, u64, i32 = structpack.String, structpack.U64, structpack.I32
	var (
		id    = clientID.Type
		tuple = structpack.StructOf
		list  = structpack.VectorOf
		done  = done.Type
		noF   = tuple(id, text, u64, u64, text)
	)
	for _, f := range []struct {
		name         string
		args, result structpack.Type
		failure      errs.Kind
	}{
		{"MountNoFSegment", tuple(noF, id), done, errs.NotSupported},
		{"ReMountNoFSegment", tuple(list(noF), id), done, errs.NotSupported},
		{"UnmountNoFSegment", tuple(id, id), done, errs.NotSupported},
		{"GetAllNoFSegments", "", expected(list(noF)), errs.OK},
		{"GetNoFSegmentsByName", text, expected(list(tuple(id, id))), errs.SegmentNotFound},
	} {
		b.other(Other{Function{Name: f.name, Args: f.args, Result: f.result}, f.failure})
	}
}

func expected(value structpack.Type) structpack.Type {
	return structpack.ExpectedOf(value, structpack.I32)
}

func (b *builder) other(f Other) {
	if b.lacksFunction(f.Name) {
		return
	}
	f.ID = FunctionID(f.Name)
	b.g.Others = append(b.g.Others, f)
	b.g.functions = append(b.g.functions, f.Function)
}
