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
	"slices"
	"strconv"
	"time"
)

const (
	// maxLine is the longest line of a file, in bytes without its newline. The conversation trace's longest has 2,053.
	maxLine = 1 << 20
	// maxReferences bounds the memory of a trace: 16 Mi block references, 58 times those of the conversation trace.
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

// Load reads a trace file, or generates a trace if the path is empty. It recognises gzip by the first bytes, whatever the
// file's name. It skips blank lines and unknown fields. Everything else is an error that names the file and the line: a line
// that is longer than 1 MiB or no JSON object, a field that is missing or not a whole number in its range, an empty list of
// hash ids, a timestamp before the previous one, a damaged gzip stream, a file without a request, and more than 16 Mi block
// references.
func Load(path string, o Options) (*Trace, error) {
	if path == "" {
		return Generate(o), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open trace: %w", err)
	}
	defer f.Close()
	return read(path, f, maxReferences)
}

func read(name string, from io.Reader, limit int) (*Trace, error) {
	content, err := unzipped(from)
	if err != nil {
		return nil, fmt.Errorf("read trace %s: %w", name, err)
	}
	lines := bufio.NewScanner(content)
	lines.Buffer(nil, maxLine+1) // one more for the newline
	t, line, references := &Trace{}, 1, 0
	var latest time.Duration
	for ; lines.Scan() && lines.Err() == nil; line++ { // after a failed read the scanner still returns half a line
		if len(lines.Bytes()) == 0 {
			continue
		}
		r, err := parse(lines.Bytes())
		if err == nil {
			err = r.check(latest)
		}
		if references += len(r.Blocks); err == nil && references > limit {
			err = fmt.Errorf("the file has more than %d block references; use a part of it", limit)
		}
		if err != nil {
			return nil, fmt.Errorf("trace %s:%d: %w", name, line, err)
		}
		latest = r.At
		t.Requests = append(t.Requests, r)
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("trace %s:%d: the line is longer than %d bytes", name, line, maxLine)
	case err != nil:
		return nil, fmt.Errorf("trace %s:%d: cannot read on, is the file complete? %w", name, line, err)
	case len(t.Requests) == 0:
		return nil, fmt.Errorf("trace %s: the file has no requests; it needs one JSON object a line", name)
	}
	return t, nil
}

// unzipped returns a reader that decompresses the input if it begins like gzip.
func unzipped(from io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(from)
	magic, err := buffered.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if string(magic) != "\x1f\x8b" {
		return buffered, nil
	}
	content, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, fmt.Errorf("it begins like a gzip file: %w", err)
	}
	return content, nil
}

func parse(line []byte) (Request, error) {
	var rec record
	if err := json.Unmarshal(line, &rec); err != nil {
		return Request{}, fmt.Errorf("bad JSON, or not of a request: %w", err)
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

func missing(field string) error { return fmt.Errorf("the field %q is missing", field) }

// UnmarshalJSON refuses null, which encoding/json by itself would take for 0.
func (b *BlockID) UnmarshalJSON(number []byte) error {
	id, err := strconv.ParseUint(string(number), 10, 64)
	if err != nil {
		return fmt.Errorf("the hash id %.20s is not a whole number from 0 to %d", number, uint64(math.MaxUint64))
	}
	*b = BlockID(id)
	return nil
}

// check returns what is wrong with a request that follows one at the time previous.
func (r Request) check(previous time.Duration) error {
	switch {
	case len(r.Blocks) == 0:
		return errors.New("the list of hash ids is empty; a request has at least one block")
	case r.At < previous:
		return fmt.Errorf("timestamp %d is before %d, the one before it; sort the requests by timestamp",
			r.At.Milliseconds(), previous.Milliseconds())
	}
	return nil
}
