package mooncake

import "github.com/understudy-store/understudy/internal/mooncake/structpack"

// others are the functions that this master answers with NOT_SUPPORTED. Their
// literals are all that it needs of them.
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
	}{
		{"MountNoFSegment", tuple(noF, id), done},
		{"ReMountNoFSegment", tuple(list(noF), id), done},
		{"UnmountNoFSegment", tuple(id, id), done},
		{"GetAllNoFSegments", "", expected(list(noF))},
		{"GetNoFSegmentsByName", text, expected(list(tuple(id, id)))},
	} {
		b.other(Function{Name: f.name, Args: f.args, Result: f.result})
	}
}

func expected(value structpack.Type) structpack.Type {
	return structpack.ExpectedOf(value, structpack.I32)
}

func (b *builder) other(f Function) {
	if b.lacksFunction(f.Name) {
		return
	}
	f.ID = FunctionID(f.Name)
	b.g.Others = append(b.g.Others, f)
	b.g.functions = append(b.g.functions, f)
}
