package httpapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/understudy-store/understudy/errs"
)

const (
	// maxLists is how many lists with more than fewEntries are sent at once.
	maxLists   = 2
	fewEntries = 1000
	// listBuffer is what is held of an answer that is written piece by piece.
	listBuffer = 32 << 10
)

// list takes a place for a list of so many entries, until end is called. It comes before the
// entries are collected: one host may have hundreds of requests under way.
func (a API) list(r *http.Request, entries int) (end func(), err error) {
	if entries <= fewEntries {
		return func() {}, nil
	}
	host := hostOf(r)
	if taken, _, _ := a.lists.Take(host, 1); !taken {
		return nil, errs.New(errs.Unavailable, "", "this list has %d entries, and one of more than %d is being sent to your host already, or two to others; try again when they are read",
			entries, fewEntries)
	}
	return func() { a.lists.GiveBack(host, 1) }, nil
}

// writeList answers with an object whose last member is a list. before is what stands
// before its elements. The caller has a place for it (API.list).
func writeList[T any](w http.ResponseWriter, before string, list []T, element func(*T) any) error {
	out := newJSONWriter(w, before)
	for i := range list {
		if err := out.element(element(&list[i])); err != nil {
			return nil //nolint:nilerr // the reader is gone
		}
	}
	out.end("]}")
	return nil
}

// A jsonWriter writes an answer with a list, or an object, element by element, so that it
// holds the encoding of one element only. The bytes are those that writeJSON would write.
type jsonWriter struct {
	out  *bufio.Writer
	one  bytes.Buffer
	json *json.Encoder // to one
	more bool          // an element was written
}

// newJSONWriter begins an answer with what stands before the elements.
func newJSONWriter(w http.ResponseWriter, before string) *jsonWriter {
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(http.StatusOK)
	j := &jsonWriter{out: bufio.NewWriterSize(w, listBuffer)}
	j.json = json.NewEncoder(&j.one)
	j.json.SetEscapeHTML(false)
	_, _ = j.out.WriteString(before)
	return j
}

// element writes an element of a list. Its error means that the reader is gone.
func (j *jsonWriter) element(v any) error {
	j.comma()
	return j.value(v)
}

// member writes a member of an object. Its error means that the reader is gone.
func (j *jsonWriter) member(name string, v any) error {
	j.comma()
	if err := j.value(name); err != nil {
		return err
	}
	_ = j.out.WriteByte(':')
	return j.value(v)
}

func (j *jsonWriter) comma() {
	if j.more {
		_ = j.out.WriteByte(',') // an error stays, and comes with the value
	}
	j.more = true
}

func (j *jsonWriter) value(v any) error {
	j.one.Reset()
	if err := j.json.Encode(v); err != nil {
		return err
	}
	_, err := j.out.Write(bytes.TrimSuffix(j.one.Bytes(), []byte("\n")))
	return err
}

func (j *jsonWriter) end(after string) {
	_, _ = j.out.WriteString(after + "\n")
	_ = j.out.Flush() // the reader may be gone
}
