package trace

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"time"
)

const (
	// MaxLine is the longest line that a Reader takes, in bytes without its newline. The conversation trace's longest has 2,053.
	MaxLine = 1 << 20
	// maxReferences bounds the memory of Read: 16 Mi block references, 58 times those of the conversation trace.
	maxReferences = 16 << 20
	// maxTimestamp is the largest that a time.Duration can hold, in milliseconds.
	maxTimestamp = math.MaxInt64 / uint64(time.Millisecond)
)

// A record is a line of a trace file. The fields are pointers to tell a missing one from 0.
type record struct {
	Timestamp    *uint64   `json:"timestamp"` // ms
	InputLength  *uint32   `json:"input_length"`
	OutputLength *uint32   `json:"output_length"`
	HashIDs      []BlockID `json:"hash_ids"`
}

// Load reads a trace file, or generates a trace if the path is empty.
func Load(path string, o Options) (*Trace, error) {
	if path == "" {
		return Generate(o), nil
	}
	return Read(path)
}

// Read reads a whole trace file, plain or gzip, as Open and Next do. It refuses one of more than 16 Mi block references.
func Read(path string) (*Trace, error) {
	r, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.readAll(maxReferences)
}

// A Reader reads a trace file request by request. It is not safe for concurrent use.
type Reader struct {
	name   string
	file   io.Closer
	lines  *bufio.Scanner
	line   int // of the last one read, from 1
	latest time.Duration
	count  int   // requests read
	err    error // what Next has ended with
}

// Open opens a trace file. It knows gzip by its first two bytes, whatever the file's name. The caller closes the Reader.
func Open(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open trace: %w", err)
	}
	r, err := newReader(path, f)
	if err != nil {
		f.Close()
		return nil, err
	}
	r.file = f
	return r, nil
}

func newReader(name string, from io.Reader) (*Reader, error) {
	buffered := bufio.NewReader(from)
	magic, err := buffered.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read trace %s: %w", name, err)
	}
	var content io.Reader = buffered
	if string(magic) == "\x1f\x8b" {
		content, err = gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("read trace %s: it begins like a gzip file: %w", name, err)
		}
	}
	lines := bufio.NewScanner(content)
	lines.Buffer(nil, MaxLine+1) // the newline
	return &Reader{name: name, lines: lines}, nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// Next returns the next request, or io.EOF after the last one. Blank lines and fields it does not know are skipped. Any
// other error names the file and the line, and is final: a line that is longer than MaxLine or no JSON object, a field that
// is missing or no whole number of its range, an empty list of hash ids, a timestamp before the previous one, a gzip stream
// that is damaged, and a file without a request.
func (r *Reader) Next() (Request, error) {
	if r.err != nil {
		return Request{}, r.err
	}
	for r.lines.Scan() && r.lines.Err() == nil { // after a failed read the scanner still hands out half a line
		r.line++
		if len(r.lines.Bytes()) == 0 {
			continue
		}
		request, err := parse(r.lines.Bytes())
		if err == nil {
			err = request.check(r.latest)
		}
		if err != nil {
			r.err = fmt.Errorf("trace %s:%d: %w", r.name, r.line, err)
			return Request{}, r.err
		}
		r.latest = request.At
		r.count++
		return request, nil
	}
	r.err = r.end()
	return Request{}, r.err
}

// end says why there are no more lines.
func (r *Reader) end() error {
	switch err := r.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("trace %s:%d: the line is longer than %d bytes", r.name, r.line+1, MaxLine)
	case err != nil:
		return fmt.Errorf("trace %s:%d: cannot read on, is the file complete? %w", r.name, r.line+1, err)
	case r.count == 0:
		return fmt.Errorf("trace %s: the file has no requests; it needs one JSON object a line", r.name)
	}
	return io.EOF
}

func (r *Reader) readAll(limit int) (*Trace, error) {
	t, references := &Trace{}, 0
	for {
		request, err := r.Next()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, err
		}
		references += len(request.Blocks)
		if references > limit {
			return nil, fmt.Errorf("trace %s:%d: the file has more than %d block references; use a part of it", r.name, r.line, limit)
		}
		t.Requests = append(t.Requests, request)
	}
}

func parse(line []byte) (Request, error) {
	var rec record
	if err := json.Unmarshal(line, &rec); err != nil {
		return Request{}, explain(err)
	}
	switch {
	case rec.Timestamp == nil:
		return Request{}, missing("timestamp")
	case rec.InputLength == nil:
		return Request{}, missing("input_length")
	case rec.OutputLength == nil:
		return Request{}, missing("output_length")
	case rec.HashIDs == nil:
		return Request{}, missing("hash_ids")
	case *rec.Timestamp > maxTimestamp:
		return Request{}, fmt.Errorf("timestamp %d is too large; the largest is %d ms", *rec.Timestamp, maxTimestamp)
	}
	return Request{
		At:           time.Duration(*rec.Timestamp) * time.Millisecond,
		InputTokens:  *rec.InputLength,
		OutputTokens: *rec.OutputLength,
		Blocks:       slices.Clone(rec.HashIDs), // without the room that decoding left behind it
	}, nil
}

// UnmarshalJSON refuses null, which encoding/json by itself would take for 0.
func (b *BlockID) UnmarshalJSON(number []byte) error {
	id, err := strconv.ParseUint(string(number), 10, 64)
	if err != nil {
		return fmt.Errorf("the hash id %.20s is not a whole number from 0 to %d", number, uint64(math.MaxUint64))
	}
	*b = BlockID(id)
	return nil
}

func missing(field string) error { return fmt.Errorf("the field %q is missing", field) }

// explain puts the errors of encoding/json in terms of the file instead of Go.
func explain(err error) error {
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("bad JSON: %w", err)
	}
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	switch wrong.Type.Kind() {
	case reflect.Struct:
		return fmt.Errorf("the line is a JSON %s; it must be an object", wrong.Value)
	case reflect.Slice:
		return fmt.Errorf("the field %q is a JSON %s; it must be a list", wrong.Field, wrong.Value)
	}
	return fmt.Errorf("the field %q is a JSON %s; it must be a whole number from 0 to %d",
		wrong.Field, wrong.Value, uint64(1)<<wrong.Type.Bits()-1)
}

// check says what is wrong with a request after one that arrived at the given time. What passes can be written and read.
func (r Request) check(previous time.Duration) error {
	switch {
	case len(r.Blocks) == 0:
		return errors.New("the list of hash ids is empty; a request has at least one block")
	case r.At < previous:
		return fmt.Errorf("timestamp %d is before %d, the one before it; sort the requests by timestamp",
			r.At.Milliseconds(), previous.Milliseconds())
	case r.At%time.Millisecond != 0:
		return fmt.Errorf("the arrival at %v is not in whole milliseconds", r.At)
	}
	return nil
}
