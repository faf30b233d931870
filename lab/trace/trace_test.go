package trace

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// aTrace draws a trace that a file can hold.
func aTrace(t *rapid.T) *Trace {
	at := time.Duration(0)
	request := rapid.Custom(func(t *rapid.T) Request {
		at += time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "gap in ms")) * time.Millisecond
		return Request{
			At:           at,
			InputTokens:  rapid.Uint32().Draw(t, "input"),
			OutputTokens: rapid.Uint32().Draw(t, "output"),
			Blocks: rapid.SliceOfN(rapid.Map(rapid.Uint64(), func(id uint64) BlockID { return BlockID(id) }), 1, 20).
				Draw(t, "blocks"),
		}
	})
	return &Trace{Requests: rapid.SliceOfN(request, 1, 20).Draw(t, "requests")}
}

// smallTrace draws a trace with few different blocks, so that they come again.
func smallTrace(t *rapid.T) *Trace {
	block := rapid.Map(rapid.Uint64Range(0, 12), func(id uint64) BlockID { return BlockID(id) })
	lists := rapid.SliceOf(rapid.SliceOfN(block, 1, 6)).Draw(t, "blocks")
	tr := &Trace{}
	for _, blocks := range lists {
		tr.Requests = append(tr.Requests, Request{Blocks: blocks})
	}
	return tr
}

func traceOf(lists ...[]BlockID) *Trace {
	t := &Trace{}
	for i, blocks := range lists {
		t.Requests = append(t.Requests, Request{At: time.Duration(i) * time.Second, Blocks: blocks})
	}
	return t
}

// written is a trace as a file has it.
func written(t testing.TB, tr *Trace) []byte {
	t.Helper()
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	for _, r := range tr.Requests {
		at := uint64(r.At.Milliseconds())
		if err := lines.Encode(record{&at, &r.InputTokens, &r.OutputTokens, r.Blocks}); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}
