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
		{"a line of the full length", "trace", padded(maxLine) + goodLine, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Load(file(t, tt.file, tt.content), Options{})
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
		{"a byte", "x", ":1: bad JSON, or not of a request: invalid character 'x'"},
		{"half an object", goodLine + "\n" + `{"timestamp": 1`, ":3: bad JSON, or not of a request: unexpected end"},
		{"two objects in a line", strings.TrimSpace(goodLine) + goodLine, ":1: bad JSON, or not of a request: invalid character '{' after"},
		{"an array", "[1]\n", ":1: bad JSON, or not of a request: json: cannot unmarshal array"},
		{"null", "null\n", `:1: the field "timestamp" is missing`},
		{"no timestamp", with(`"timestamp"`, `"time"`), `:2: the field "timestamp" is missing`},
		{"no input length", with(`"input_length"`, `"input"`), `:2: the field "input_length" is missing`},
		{"no output length", with(`"output_length"`, `"output"`), `:2: the field "output_length" is missing`},
		{"no hash ids", with(`"hash_ids"`, `"hashes"`), `:2: the field "hash_ids" is missing`},
		{"null hash ids", with(`[0, 18446744073709551615]`, `null`), `:2: the field "hash_ids" is missing`},
		{"empty hash ids", with(`[0, 18446744073709551615]`, `[]`), ":2: the list of hash ids is empty"},
		{"hash ids no list", with(`[0, 18446744073709551615]`, `7`), ":2: bad JSON, or not of a request: json: cannot unmarshal number into Go struct field record.hash_ids"},
		{"negative hash id", with(`[0,`, `[-1,`), ":2: bad JSON, or not of a request: the hash id -1 is not a whole number from 0 to 18446744073709551615"},
		{"fraction for a hash id", with(`[0,`, `[0.5,`), ":2: bad JSON, or not of a request: the hash id 0.5 is not a whole number"},
		{"string for a hash id", with(`[0,`, `["a",`), `:2: bad JSON, or not of a request: the hash id "a" is not a whole number`},
		{"null for a hash id", with(`[0,`, `[null,`), ":2: bad JSON, or not of a request: the hash id null is not a whole number"},
		{"huge hash id", with(`615]`, `616]`), ":2: bad JSON, or not of a request: the hash id 18446744073709551616 is not a whole number"},
		{"negative length", with(`700`, `-1`), ":2: bad JSON, or not of a request: json: cannot unmarshal number -1 into Go struct field record.input_length of type uint32"},
		{"string for a length", with(`: 5`, `: "5"`), ":2: bad JSON, or not of a request: json: cannot unmarshal string into Go struct field record.output_length"},
		{"negative timestamp", with(`3000`, `-1`), ":2: bad JSON, or not of a request: json: cannot unmarshal number -1 into Go struct field record.timestamp"},
		{"huge timestamp", with(`3000`, `9223372036855`), ":2: timestamp 9223372036855 is too large"},
		{"timestamp backwards", with(`3000`, `2999`), ":2: timestamp 2999 is before 3000"},
		{"long line", goodLine + padded(maxLine+1), ":2: the line is longer than 1048576 bytes"},
		{"only the gzip magic", "\x1f\x8b", ": it begins like a gzip file: unexpected EOF"},
		{"gzip cut off", zipped(goodLine)[:60], ":1: cannot read on, is the file complete? unexpected EOF"},
		{"gzip checksum", zipped(goodLine)[:len(zipped(goodLine))-8] + "12345678", ":1: cannot read on, is the file complete? gzip: invalid checksum"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := file(t, "trace", tt.content)
			_, err := Load(path, Options{})
			if err == nil || !strings.Contains(err.Error(), path+tt.want) {
				t.Errorf("got error %v, want one with %q", err, path+tt.want)
			}
		})
	}
}

func TestLoadOfNoFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(filepath.Join(dir, "none"), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that does not exist: got error %v, want %v", err, fs.ErrNotExist)
	}
	if _, err := Load(dir, Options{}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a folder: got error %v, want one that names %s", err, dir)
	}
}

func TestReadIsBounded(t *testing.T) {
	for limit, want := range map[int]bool{3: false, 4: true} {
		_, err := read("trace", strings.NewReader(goodLine+goodLine), limit)
		if (err == nil) != want {
			t.Errorf("4 references with a limit of %d: got error %v, want that it is read: %t", limit, err, want)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := aTrace(rt)
		requireSame(t, want, written(t, want))
	})
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{"", "\n", goodLine, goodLine + goodLine, zipped(goodLine), zipped(goodLine)[:40], "null", "[]", `{"hash_ids":[null]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		tr, err := read("fuzz", bytes.NewReader(content), 1<<16)
		if err != nil {
			if !strings.Contains(err.Error(), "trace fuzz:") {
				t.Errorf("got error %v, want one that names the file", err)
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
		if _, err := Load(path, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func requireSame(t *testing.T, want *Trace, content []byte) {
	t.Helper()
	got, err := read("trace", bytes.NewReader(content), maxReferences)
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
