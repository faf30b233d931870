package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const goodLine = `{"timestamp": 3000, "input_length": 700, "output_length": 5, "hash_ids": [0, 18446744073709551615]}` + "\n"

var goodRequest = Request{At: 3 * time.Second, InputTokens: 700, OutputTokens: 5, Blocks: []BlockID{0, 1<<64 - 1}}

func TestRead(t *testing.T) {
	tests := []struct {
		name, file, content string
		want                int // good requests
	}{
		{"plain", "trace.jsonl", goodLine, 1},
		{"gzip", "trace.jsonl.gz", zipped(goodLine), 1},
		{"gzip under a plain name", "trace.jsonl", zipped(goodLine), 1},
		{"plain under a gzip name", "trace.jsonl.gz", goodLine, 1},
		{"two gzip members", "trace.gz", zipped(goodLine) + zipped(goodLine), 2},
		{"same timestamp", "trace", goodLine + goodLine, 2},
		{"no newline at the end", "trace", goodLine + strings.TrimSpace(goodLine), 2},
		{"blank lines and CRLF", "trace", "\n" + goodLine + "\r\n\n" + strings.TrimSpace(goodLine) + "\r\n\n", 2},
		{"unknown fields", "trace", strings.Replace(goodLine, "{", `{"user": {"id": null}, `, 1), 1},
		{"a line of the full length", "trace", padded(MaxLine) + goodLine, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Read(file(t, tt.file, tt.content))
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Requests) != tt.want {
				t.Fatalf("got %d requests, want %d", len(got.Requests), tt.want)
			}
			for _, r := range got.Requests {
				if !reflect.DeepEqual(r, goodRequest) {
					t.Errorf("got %+v, want %+v", r, goodRequest)
				}
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	with := func(old, new string) string { return goodLine + strings.Replace(goodLine, old, new, 1) }
	tests := []struct {
		name, content string
		want          string // follows the file's name
	}{
		{"empty file", "", ": the file has no requests"},
		{"empty gzip file", zipped(""), ": the file has no requests"},
		{"only blank lines", "\n\n", ": the file has no requests"},
		{"a byte", "x", ":1: bad JSON: invalid character 'x'"},
		{"half an object", goodLine + "\n" + `{"timestamp": 1`, ":3: bad JSON: unexpected end"},
		{"two objects in a line", strings.TrimSpace(goodLine) + goodLine, ":1: bad JSON: invalid character '{' after"},
		{"an array", "[1]\n", ":1: the line is a JSON array; it must be an object"},
		{"null", "null\n", `:1: the field "timestamp" is missing`},
		{"no timestamp", with(`"timestamp"`, `"time"`), `:2: the field "timestamp" is missing`},
		{"no input length", with(`"input_length"`, `"input"`), `:2: the field "input_length" is missing`},
		{"no output length", with(`"output_length"`, `"output"`), `:2: the field "output_length" is missing`},
		{"no hash ids", with(`"hash_ids"`, `"hashes"`), `:2: the field "hash_ids" is missing`},
		{"null hash ids", with(`[0, 18446744073709551615]`, `null`), `:2: the field "hash_ids" is missing`},
		{"empty hash ids", with(`[0, 18446744073709551615]`, `[]`), ":2: the list of hash ids is empty"},
		{"hash ids no list", with(`[0, 18446744073709551615]`, `7`), `:2: the field "hash_ids" is a JSON number; it must be a list`},
		{"negative hash id", with(`[0,`, `[-1,`), ":2: the hash id -1 is not a whole number from 0 to 18446744073709551615"},
		{"fraction for a hash id", with(`[0,`, `[0.5,`), ":2: the hash id 0.5 is not a whole number"},
		{"string for a hash id", with(`[0,`, `["a",`), `:2: the hash id "a" is not a whole number`},
		{"null for a hash id", with(`[0,`, `[null,`), ":2: the hash id null is not a whole number"},
		{"huge hash id", with(`615]`, `616]`), ":2: the hash id 18446744073709551616 is not a whole number"},
		{"negative length", with(`700`, `-1`), `:2: the field "input_length" is a JSON number -1; it must be a whole number from 0 to 4294967295`},
		{"string for a length", with(`: 5`, `: "5"`), `:2: the field "output_length" is a JSON string; it must be a whole number`},
		{"negative timestamp", with(`3000`, `-1`), `:2: the field "timestamp" is a JSON number -1; it must be a whole number`},
		{"huge timestamp", with(`3000`, `9223372036855`), ":2: timestamp 9223372036855 is too large"},
		{"timestamp backwards", with(`3000`, `2999`), ":2: timestamp 2999 is before 3000"},
		{"long line", goodLine + padded(MaxLine+1), ":2: the line is longer than 1048576 bytes"},
		{"only the gzip magic", "\x1f\x8b", ": it begins like a gzip file: unexpected EOF"},
		{"gzip cut off", zipped(goodLine)[:60], ":1: cannot read on, is the file complete? unexpected EOF"},
		{"gzip checksum", zipped(goodLine)[:len(zipped(goodLine))-8] + "12345678", ":1: cannot read on, is the file complete? gzip: invalid checksum"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := file(t, "trace", tt.content)
			_, err := Read(path)
			if err == nil || !strings.Contains(err.Error(), path+tt.want) {
				t.Errorf("got error %v, want one with %q", err, path+tt.want)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a folder: %v", err)
	}
}

func TestNextStaysAtItsEnd(t *testing.T) {
	tests := []struct{ name, content string }{
		{"end of file", goodLine},
		{"bad line before a good one", goodLine + "{}\n" + goodLine},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := Open(file(t, "trace", tt.content))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if got, err := r.Next(); err != nil || !reflect.DeepEqual(got, goodRequest) {
				t.Fatalf("got %+v, %v", got, err)
			}
			_, first := r.Next()
			if _, again := r.Next(); first == nil || again != first {
				t.Errorf("first %v, then %v", first, again)
			}
		})
	}
}

func TestReadIsBounded(t *testing.T) {
	for limit, want := range map[int]bool{3: false, 4: true} {
		r, err := newReader("trace", strings.NewReader(goodLine+goodLine))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = r.readAll(limit); (err == nil) != want {
			t.Errorf("4 references with a limit of %d: %v", limit, err)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := aTrace(rt)
		requireSame(t, want, written(t, want))
	})
}

func TestWriteRefusesWhatReadWould(t *testing.T) {
	tests := []struct {
		name     string
		requests []Request
		want     string
	}{
		{"no blocks", []Request{{}}, "request 0: the list of hash ids is empty"},
		{"before the start", []Request{{At: -time.Second, Blocks: []BlockID{1}}}, "request 0: timestamp -1000 is before 0"},
		{"backwards", []Request{goodRequest, {At: time.Second, Blocks: []BlockID{1}}}, "request 1: timestamp 1000 is before 3000"},
		{"microseconds", []Request{{At: time.Microsecond, Blocks: []BlockID{1}}}, "request 0: the arrival at 1µs is not in whole"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := (&Trace{Requests: tt.requests}).Write(io.Discard)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestWriteFails(t *testing.T) {
	closed, w := io.Pipe()
	closed.Close()
	if err := traceOf([]BlockID{1}).Write(w); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got error %v", err)
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{"", "\n", goodLine, goodLine + goodLine, zipped(goodLine), zipped(goodLine)[:40], "null", "[]", `{"hash_ids":[null]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		r, err := newReader("fuzz", bytes.NewReader(content))
		if err != nil {
			return
		}
		tr, err := r.readAll(1 << 16)
		if err != nil {
			if !strings.Contains(err.Error(), "fuzz:") {
				t.Errorf("the error does not name the file: %v", err)
			}
			return
		}
		requireSame(t, tr, written(t, tr))
	})
}

func BenchmarkRead(b *testing.B) {
	content := written(b, Generate(Options{Requests: 12_000}))
	path := file(b, "trace.gz", zipped(string(content)))
	b.SetBytes(int64(len(content)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(path); err != nil {
			b.Fatal(err)
		}
	}
}

func requireSame(t *testing.T, want *Trace, content []byte) {
	t.Helper()
	r, err := newReader("trace", bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.readAll(maxReferences)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func file(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func zipped(content string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, content)
	w.Close()
	return b.String()
}

// padded returns the good line, made as long as given without its newline.
func padded(length int) string {
	line := strings.TrimSpace(goodLine)
	return line[:1] + strings.Repeat(" ", length-len(line)) + line[1:] + "\n"
}
